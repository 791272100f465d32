"""A model over packed caches: however its rows were cut, drafted and taken back, the logits are the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engine.cache.stores.kinds import KVKind, kv_kinds
from engine.compute.batch import SequenceRows
from tests.engine.loop.kinds_support import LONG, Sequence1, in_chunks
from tests.kit.models import tokens

KINDS = [
    *(KVKind(each.name, hadamard=mixed) for each in kv_kinds() if each.mixes for mixed in (False, True)),
    KVKind("fp8"),
    KVKind("kivi", 4, 2, 64),
    KVKind("kivi", 2, 4, 96),
]


@pytest.fixture(scope="module")
def whole() -> dict[KVKind, Tensor]:
    torch.set_num_threads(1)
    return {kind: in_chunks(Sequence1(kind), tokens(LONG), LONG) for kind in [KVKind(), *KINDS]}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
@pytest.mark.parametrize("size", [1, 7, 16, 100])
def test_chunks_change_nothing(whole: dict[KVKind, Tensor], kind: KVKind, size: int) -> None:
    assert torch.equal(in_chunks(Sequence1(kind, table=[*range(39, 20, -1)]), tokens(LONG), size), whole[kind])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
def test_drafts_that_are_taken_back_change_nothing(whole: dict[KVKind, Tensor], kind: KVKind) -> None:
    """Each step's last rows are wrong drafts, which the next step overwrites."""
    sequence, ids = Sequence1(kind), tokens(LONG)
    found, start = [], 0
    for step in range(LONG):
        kept = 40 if step == 0 else 1 + step % 5
        stop = min(start + kept, LONG)
        wrong = [(token + 1) % 50 for token in tokens(6 + step % 40, step)]
        found.append(sequence.forward([*ids[start:stop], *wrong], start)[: stop - start])
        start = stop
        if start == LONG:
            break
    assert torch.equal(torch.cat(found), whole[kind])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
def test_a_tree_gives_each_path_its_own_logits(whole: dict[KVKind, Tensor], kind: KVKind) -> None:
    """The right drafts are nodes 0, 2 and 4 of a tree; they are moved together and the sequence goes on."""
    ids, start = tokens(LONG), 158
    sequence = Sequence1(kind)
    for at in range(0, start, 50):
        sequence.forward(ids[at : min(at + 50, start)], at)
    nodes = [ids[start], 7, ids[start + 1], 9, ids[start + 2], 3]
    logits = sequence.forward(nodes, start, (-1, 0, 0, 1, 2, 2))
    assert torch.equal(logits[[0, 2, 4]], whole[kind][start : start + 3])
    table = sequence.recent if kind.residual else sequence.pages
    slots = torch.tensor([table[i // 16] * 16 + i % 16 for i in range(start, start + 6)])
    sequence.store.move_slots(slots[[2, 4]], slots[[1, 2]])
    rest = sequence.forward(ids[start + 3 :], start + 3)
    assert torch.equal(rest, whole[kind][start + 3 :])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
def test_padding_and_fast_numerics_stay_near(whole: dict[KVKind, Tensor], kind: KVKind) -> None:
    found = in_chunks(Sequence1(kind, invariant=False, padded=True), tokens(LONG), 33)
    torch.testing.assert_close(found, whole[kind], rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
def test_a_lossy_kind_loses_something_but_not_much(whole: dict[KVKind, Tensor], kind: KVKind) -> None:
    exact, near = whole[KVKind()], whole[kind]
    off = (near - exact).abs().max() / exact.abs().max()
    assert 0 < off < {"int8": 0.02, "fp8": 0.1, "int4": 0.2, "kivi": 0.35}[kind.name]
    if kind.residual:
        assert torch.equal(near[: kind.residual + 31], exact_with_recent(kind)), "nothing is packed so early"


def exact_with_recent(kind: KVKind) -> Tensor:
    """The first rows over a residual that holds all of them."""
    sequence = Sequence1(replace(kind, residual=256))
    return sequence.forward(tokens(LONG)[: kind.residual + 31], 0)


def test_a_step_packs_the_groups_that_its_rows_leave_behind() -> None:
    sequence = Sequence1(KVKind("kivi", 2, 2, 64))
    placement = sequence.runner.batch([sequence.rows(tokens(100), 0)]).placement
    assert placement.flush is not None
    assert placement.flush.pages.tolist() == sequence.pages[:2]
    assert placement.flush.recent_slots.tolist() == [page * 16 + i for page in sequence.recent[:2] for i in range(16)]
    batch = sequence.runner.batch([sequence.rows([1], 100)])
    assert batch.placement.flush is None
    assert batch.views is not None
    assert batch.views.packed_until is not None
    assert batch.views.packed_until.tolist() == [32]
    assert batch.placement.slots.tolist()[1] == [sequence.recent[6] * 16 + 4]
    first = sequence.runner.batch([sequence.rows([1] * 30, 126)])
    assert first.views is not None
    assert first.views.packed_until is not None
    assert first.views.packed_until.tolist() == [32] + [64] * 29


def test_rows_without_recent_pages_are_refused() -> None:
    sequence = Sequence1(KVKind("kivi", 2, 2, 64))
    with pytest.raises(ValueError, match="pages in 1 of 2 groups"):
        sequence.runner.forward([SequenceRows([1], 0, [1], 1)])
