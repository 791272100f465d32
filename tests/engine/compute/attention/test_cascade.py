"""Keys that sequences share are read once, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.cache.stores.packed import PackedKV, Placement
from engine.cache.stores.store import DenseKVStore, KVStore, LatentKVStore
from engine.compute.attention import cascade
from engine.compute.attention.backends.native import NativeAttention
from engine.compute.attention.backends.reference import ReferenceAttention
from engine.compute.attention.backends.sdpa import SdpaAttention
from engine.compute.attention.cascade import find_shared
from engine.compute.attention.interface import AttentionBackend, AttnSpec
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import Batch, RowViews, SequenceRows
from engine.compute.layers.numerics import Numerics
from engine.compute.runner.buffers import powers_of_two
from engine.compute.runner.runner import Runner
from tests.engine.compute.attention.attention_cases import Case, apart, as_latents
from tests.kit.examples import examples

SPEC = AttnSpec(0.25)
TREE = (-1, 0, 0, 1)


class OneGroup:
    num_groups = 1


@pytest.fixture(autouse=True)
def _two_pages_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cascade, "LEAST_PAGES", 2)
    monkeypatch.setattr(cascade, "LEAST_SAVED", 2)


def families(
    shapes: list[tuple[int, int, int, bool]],
    kind: str = "dense",
    policy: bool = False,
    dtype: torch.dtype = torch.float32,
) -> tuple[list[Case], Batch, Tensor, PackedKV]:
    """Sequences (trunk, own pages shared of it, tokens besides, tree): those of a trunk begin with the same pages."""
    generator = torch.Generator().manual_seed(1)
    heads = (4, 1) if kind == "latent" else (4, 2)
    trunks = [Case(0, 96).fill(*heads, 16, dtype, generator) for _ in range(3)]
    store: KVStore = DenseKVStore([(2, 16)], 200, dtype)
    if kind == "latent":
        store = LatentKVStore(1, 200, 10, 6, dtype)
    cases, rows, free = [], [], 1 + 3 * 6
    for trunk, pages, more, tree in shapes:
        count = len(TREE) if tree else 1 + more % 3
        length = pages * 16 + more + count
        case = Case(length - count, count, TREE if tree else None).fill(*heads, 16, dtype, generator)
        case.k[: pages * 16] = trunks[trunk].k[: pages * 16]
        case.v[: pages * 16] = trunks[trunk].v[: pages * 16]
        if kind == "latent":
            as_latents([case], 10)
        own = -(-length // 16) - pages
        table = [*range(1 + 6 * trunk, 1 + 6 * trunk + pages), *range(free, free + own)]
        free += own
        slots = torch.tensor([table[i // 16] * 16 + i % 16 for i in range(length)])
        store.write(0, case.k, case.v, Placement(slots[None], [-1]))
        cases.append(case)
        rows.append(SequenceRows([0] * count, case.start, table, 0, case.parents))
    batch = Runner(OneGroup(), store, None, policy=powers_of_two if policy else None).batch(rows)  # type: ignore[arg-type]
    q = torch.zeros(batch.tokens.shape[0], heads[0], 16, dtype=dtype)
    q[: batch.host.T] = torch.cat([case.q for case in cases])
    return cases, batch, q, store.view(0)


members = st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(0, 40), st.booleans())


@pytest.mark.parametrize("backend", [SdpaAttention, ReferenceAttention])
@pytest.mark.parametrize("kind", ["dense", "latent"])
def test_any_families_of_sequences(backend: type[AttentionBackend], kind: str) -> None:
    @examples(30)
    @given(st.lists(members, min_size=1, max_size=7), st.booleans(), st.booleans())
    def run(shapes: list[tuple[int, int, int, bool]], policy: bool, need_lse: bool) -> None:
        cases, batch, q, kv = families(shapes, kind, policy)
        o, lse = AttentionDispatcher(Numerics(), [backend()]).attend(q, kv, SPEC, batch, 0, need_lse)
        want = [case.expected(SPEC) for case in cases]
        assert apart(o[: batch.host.T], torch.cat([o for o, _ in want])) < 3e-6
        assert not o[batch.host.T :].any()
        assert (lse is not None) == need_lse
        if lse is not None:
            assert apart(lse[: batch.host.T], torch.cat([lse for _, lse in want])) < 3e-6

    run()


def test_what_is_shared_and_what_it_saves() -> None:
    shapes = [
        (0, 5, 3, False),
        (1, 4, 1, False),
        (0, 5, 8, False),
        (0, 6, 0, True),
        (1, 4, 20, False),
        (2, 6, 2, False),
    ]
    _, batch, q, kv = families(shapes)
    shared = find_shared(batch, 0)
    assert shared is not None
    assert shared.saved == 2 * 5 * 16 + 1 * 4 * 16
    assert sorted(shared.batch.host.pages[0][0][:5]) == [1, 2, 3, 4, 5]
    start = batch.host.row_start
    members = [[*range(start[s], start[s + 1])] for s in (0, 2, 3, 1, 4)]
    assert shared.rows.tolist() == [row for rows in members for row in rows]
    attention = AttentionDispatcher(Numerics(), [SdpaAttention()])
    for _ in range(3):
        attention.attend(q, kv, SPEC, batch)
    assert attention.keys_saved == 3 * shared.saved


def test_families_within_families_are_parted_where_they_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cascade, "LEAST_PAGES", 4)
    _, batch, _, _ = families([(0, 5, 3, False), (0, 5, 9, False), (0, 2, 40, False)])
    shared = find_shared(batch, 0)
    assert shared is not None
    assert shared.saved == 5 * 16


def test_it_is_left_out() -> None:
    shapes = [(0, 5, 3, False), (0, 5, 9, False)]
    _, batch, q, kv = families(shapes)

    def saves(numerics: Numerics | None, spec: AttnSpec = SPEC, made: Batch = batch) -> bool:
        attention = AttentionDispatcher(numerics)
        attention.attend(q, kv, spec, made)
        return attention.keys_saved > 0

    assert saves(Numerics())
    assert not saves(Numerics(cascade=False))
    assert not saves(Numerics(batch_invariant=True))
    assert not saves(None)
    assert not saves(Numerics(), AttnSpec(0.25, 40))
    assert saves(Numerics(), AttnSpec(0.25, 400)), "a window that hides nothing"
    assert not saves(Numerics(), made=replace(batch, views=RowViews(np.zeros(batch.host.T, np.int64))))
    alone = families([(0, 5, 3, False), (1, 5, 9, False)])[1]
    assert find_shared(alone, 0) is None


def test_new_rows_are_not_shared() -> None:
    """A page that a step writes to is no prefix of it, even if the tables agree."""
    rows = [SequenceRows([1] * 20, 48, [1, 2, 3, 4, 5]), SequenceRows([1], 79, [1, 2, 3, 4, 5])]
    batch = Runner(OneGroup(), DenseKVStore([(2, 16)], 9, torch.float32), None).batch(rows)  # type: ignore[arg-type]
    assert find_shared(batch, 0) is None, "a long chunk reads its keys once as it is"
    rows[0] = SequenceRows([1] * 10, 48, [1, 2, 3, 4, 5])
    batch = Runner(OneGroup(), DenseKVStore([(2, 16)], 9, torch.float32), None).batch(rows)  # type: ignore[arg-type]
    shared = find_shared(batch, 0)
    assert shared is not None
    assert shared.saved == 48


def test_the_switch_is_live() -> None:
    numerics = Numerics(cascade=False)
    cases, batch, q, kv = families([(0, 6, 3, False), (0, 6, 9, False)])
    attention = AttentionDispatcher(numerics, [SdpaAttention()])
    for numerics.cascade in (False, True, False):
        before = attention.keys_saved
        o, _ = attention.attend(q, kv, SPEC, batch)
        assert (attention.keys_saved > before) == numerics.cascade
        assert apart(o, torch.cat([case.expected(SPEC)[0] for case in cases])) < 3e-6


def test_native_rows_stay_alone() -> None:
    native = NativeAttention()
    cases, batch, q, kv = families([(0, 6, 3, False), (0, 6, 9, False)], dtype=torch.bfloat16)
    attention = AttentionDispatcher(Numerics(), [native, SdpaAttention()])
    monkey = native.declines
    native.declines = lambda problem: None if not problem.shared else monkey(problem)  # type: ignore[method-assign]
    native.attend = SdpaAttention().attend  # type: ignore[method-assign]
    o, _ = attention.attend(q, kv, SPEC, batch)
    assert attention.keys_saved == 0
    assert apart(o, torch.cat([case.expected(SPEC)[0] for case in cases])) < 2e-2
