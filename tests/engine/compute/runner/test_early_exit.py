"""A step in two parts gives what one pass gives: logits, streams, and every byte of the cache."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.cache.policies import PagePolicy
from engine.cache.stores.kinds import KVKind
from engine.cache.stores.recent import recent_span
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import ForwardOutput, SequenceRows
from engine.compute.layers.numerics import Numerics
from engine.compute.models.arenas import new_store
from engine.compute.models.families.llama import Model as Llama
from engine.compute.runner.buffers import BucketPolicy, powers_of_two
from engine.compute.runner.runner import Runner
from engine.decoding.speculation.base import NO_DRAFT, DraftTree
from engine.decoding.speculation.verify.early_exit import forward_step
from tests.engine.decoding.speculation.target_support import KINDS, NAMES
from tests.kit.models import RandomWeights, deep, tokens
from tests.kit.pairs import each_value

LAYERS, PAGES, EXIT = 5, 64, 2
DEEP = deep(LAYERS, head_dim=32)
START = 94
"""Where drafts begin: row 95 is the first with which KIVI (of 64 recent tokens) packs its first 32."""


class Paged:
    """A random Llama of five layers; sequence s has eight pages of its own in each group."""

    def __init__(
        self,
        kind: KVKind = KINDS[0][0],
        page_policy: PagePolicy = KINDS[0][1],
        invariant: bool = True,
        buckets: BucketPolicy | None = None,
    ) -> None:
        numerics = Numerics(invariant)
        self.store = new_store(DEEP, PAGES, torch.float32, kind=kind)
        self.runner = Runner(
            Llama(DEEP, RandomWeights(numerics)), self.store, AttentionDispatcher(numerics), policy=buckets
        )
        self.kind, self.policy = kind, page_policy

    def rows(self, sequence: int, ids: Sequence[int], start: int, wanted: int = 0, **more: Any) -> SequenceRows:
        pages = list(range(1 + 8 * sequence, 9 + 8 * sequence))
        recent = pages.copy()
        if self.kind.residual:
            # Freed pages of recent tokens are page 0: nothing may read them.
            first, _ = recent_span(start, len(ids), self.kind.residual)
            recent[:first] = [0] * first
        groups = (recent,) if self.kind.residual else ()
        return SequenceRows(ids, start, pages, wanted, more.get("parents"), groups, self.policy)

    def read(self, sequence: int, ids: Sequence[int]) -> None:
        self.runner.forward([self.rows(sequence, ids, 0)])

    def kept(self) -> Tensor:
        """Everything that the arenas hold but for page 0, as bytes."""
        pages = range(1, PAGES)
        recent = [self.store.recent.export_pages(pages)] if self.store.recent is not None else []
        return torch.cat([self.store.export_pages(pages), *recent], 1)

    def leave(self, sequence: int, chain: Sequence[int], count: int) -> Tensor:
        """Early states of the first ``count`` tokens of a chain, run one by one through the first layers."""
        states = []
        for depth, token in enumerate(chain[:count]):
            row = self.rows(sequence, [token], START + depth)
            states.append(self.runner.forward([row], layers=(0, EXIT)).hidden[EXIT])
        return torch.cat(states)


def mixed(host: Paged, counts: dict[int, int]) -> tuple[list[SequenceRows], list[DraftTree]]:
    """A step of two chains of the model's own, a chunk of a prompt, a chain of somebody else and one plain row.

    ``counts``: how many rows of the chains, by sequence, have early states.
    """
    chains = {0: tokens(6, 70), 1: tokens(4, 71)}
    rows, trees = [], []
    for sequence, chain in chains.items():
        host.read(sequence, tokens(START, sequence))
        count = counts.get(sequence, 0)
        early = host.leave(sequence, chain, count) if count else None
        rows.append(host.rows(sequence, chain, START, len(chain)))
        trees.append(DraftTree(tuple(chain[1:]), proposer="exit", early=early, exit_layer=EXIT if count else 0))
    host.read(2, tokens(20, 2))
    host.read(3, tokens(50, 3))
    host.read(4, tokens(33, 4))
    rows.insert(1, host.rows(2, tokens(13, 72), 20))
    trees.insert(1, NO_DRAFT)
    rows += [host.rows(3, tokens(4, 73), 50, 4), host.rows(4, tokens(1, 74), 33, 1)]
    trees += [DraftTree(tuple(tokens(4, 73)[1:]), proposer="ngram"), NO_DRAFT]
    return rows, trees


COUNTS = [{0: 5, 1: 3}, {0: 5}, {0: 2, 1: 4}, {0: 6, 1: 4}, {1: 1}]
UPPER = frozenset({EXIT, 3, LAYERS})


@each_value(cache=dict(zip(NAMES, KINDS, strict=True)), counts={str(counts): counts for counts in COUNTS})
def test_two_parts_give_the_bits_of_one_pass(cache: tuple[KVKind, PagePolicy], counts: dict[int, int]) -> None:
    kind, policy = cache
    torch.set_num_threads(1)
    plain, split = Paged(kind, policy), Paged(kind, policy)
    rows, _ = mixed(plain, {})
    expected = plain.runner.forward(rows, want_hidden=UPPER)
    found = forward_step(split.runner, *mixed(split, counts), UPPER)
    assert torch.equal(found.logits, expected.logits)
    assert found.hidden.keys() == expected.hidden.keys() == UPPER
    assert all(torch.equal(found.hidden[layer], expected.hidden[layer]) for layer in UPPER)
    assert torch.equal(split.kept(), plain.kept())


@pytest.mark.parametrize("buckets", [None, powers_of_two])
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_two_parts_are_near_one_pass_in_fast_arithmetic(counts: dict[int, int], buckets: BucketPolicy | None) -> None:
    torch.set_num_threads(1)
    plain, split = Paged(invariant=False), Paged(invariant=False, buckets=buckets)
    rows, _ = mixed(plain, {})
    expected = plain.runner.forward(rows)
    found = forward_step(split.runner, *mixed(split, counts))
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-4, atol=1e-4)
    for layer in range(LAYERS):
        ours, theirs = split.store.view(layer), plain.store.view(layer)
        torch.testing.assert_close(ours.k[16:], theirs.k[16:], rtol=0, atol=1e-5)
        torch.testing.assert_close(ours.v[16:], theirs.v[16:], rtol=0, atol=1e-5)


def test_stale_early_states_would_be_noticed() -> None:
    """The first part is not run again for rows that have states: the result rests on them."""
    split, plain = Paged(), Paged()
    rows, trees = mixed(split, {0: 5})
    assert trees[0].early is not None
    trees[0] = trees[0]._replace(early=trees[0].early.flip(0))
    found, expected = forward_step(split.runner, rows, trees), plain.runner.forward(mixed(plain, {})[0])
    wrong = (found.logits != expected.logits).any(-1).tolist()
    assert wrong == [True] * 6 + [False] * (len(wrong) - 6)


@pytest.mark.parametrize("wanted", [{0}, {1, 4}, set(range(LAYERS + 1))], ids=str)
def test_states_below_the_exit_are_those_of_all_rows(wanted: set[int]) -> None:
    plain, split = Paged(), Paged()
    expected = plain.runner.forward(mixed(plain, {})[0], want_hidden=frozenset(wanted))
    found = forward_step(split.runner, *mixed(split, COUNTS[0]), frozenset(wanted))
    assert torch.equal(found.logits, expected.logits)
    assert all(torch.equal(found.hidden[layer], expected.hidden[layer]) for layer in wanted)
    assert torch.equal(split.kept(), plain.kept())


def test_a_tree_of_somebody_else_goes_along() -> None:
    plain, split = Paged(), Paged()
    parents, nodes = (-1, 0, 0, 2, 1), tokens(5, 80)

    def step(host: Paged, counts: dict[int, int]) -> tuple[list[SequenceRows], list[DraftTree]]:
        rows, trees = mixed(host, counts)
        host.read(5, tokens(30, 5))
        tree = DraftTree(tuple(nodes[1:]), tuple(parent - 1 for parent in parents[1:]), proposer="medusa")
        return [host.rows(5, nodes, 30, 5, parents=parents), *rows], [tree, *trees]

    expected = plain.runner.forward(step(plain, {})[0])
    found = forward_step(split.runner, *step(split, COUNTS[0]))
    assert torch.equal(found.logits, expected.logits)
    assert torch.equal(split.kept(), plain.kept())


class OnlyRows:
    """A runner that takes rows and nothing else."""

    batch_seconds = 0.25
    num_layers = 2

    def forward(self, rows: Sequence[SequenceRows]) -> ForwardOutput:
        self.rows = rows
        return ForwardOutput(torch.zeros(0, 3), {})


def test_without_early_states_it_is_the_plain_forward() -> None:
    runner, rows = OnlyRows(), [SequenceRows([1, 2], 0, [1], 2)]
    forward_step(runner, rows, [DraftTree((2,), proposer="ngram")])  # type: ignore[arg-type]
    assert runner.rows is rows
    assert runner.batch_seconds == 0.25


class Timed:
    """A runner whose batches take 1, 2, 4... seconds to build, and that notes which rows ran which layers."""

    num_layers = 4

    def __init__(self) -> None:
        self.batch_seconds, self._times = 0.0, (2.0**n for n in itertools.count())
        self.ran: list[tuple[tuple[int, int], list[int]]] = []

    def forward(self, rows: Sequence[SequenceRows], *, layers: tuple[int, int], **options: Any) -> ForwardOutput:
        self.batch_seconds = next(self._times)
        self.ran.append((layers, [token for row in rows for token in row.tokens]))
        count = sum(len(row.tokens) for row in rows)
        return ForwardOutput(torch.zeros(0, 3), {layers[1]: torch.zeros(count, 3)})


def test_only_rows_that_lack_states_run_the_first_layers_and_both_batches_are_timed() -> None:
    runner = Timed()
    rows = [SequenceRows([1, 2, 3], 0, [1], 3), SequenceRows([4, 5], 0, [2]), SequenceRows([6, 7], 0, [3], 2)]
    early = DraftTree((2, 3), early=torch.ones(2, 3), exit_layer=1), NO_DRAFT, DraftTree((7,), proposer="ngram")
    forward_step(runner, rows, early)
    assert runner.ran == [((0, 1), [3, 4, 5, 6, 7]), ((1, 4), [1, 2, 3, 4, 5, 6, 7])]
    assert runner.batch_seconds == 3.0
    forward_step(runner, rows[:1], [early[0]._replace(early=torch.ones(3, 3))])
    assert runner.ran[2:] == [((1, 4), [1, 2, 3])]
    assert runner.batch_seconds == 4.0


@pytest.mark.parametrize(
    ("row", "tree", "message"),
    [
        (SequenceRows([1, 2], 0, [1], 2), DraftTree((2,), early=torch.ones(3, 3), exit_layer=1), "3 rows for 2 rows"),
        (SequenceRows([1, 2], 0, [1], 2), DraftTree((2,), early=torch.ones(0, 3), exit_layer=1), "0 rows for 2 rows"),
        (SequenceRows([1, 2], 0, [1], 2, (-1, 0)), DraftTree((2,), (-1,), None, "", torch.ones(1, 3), 1), "a chain"),
        (SequenceRows([1, 2], 0, [1], 2), DraftTree((2,), early=torch.ones(1, 3), exit_layer=3), r"layers: \[1, 3\]"),
    ],
)
def test_states_that_do_not_fit_are_refused(row: SequenceRows, tree: DraftTree, message: str) -> None:
    other = DraftTree((2,), early=torch.ones(1, 3), exit_layer=1)
    with pytest.raises(ValueError, match=message):
        forward_step(Timed(), [SequenceRows([1, 2], 0, [1], 2), row], [other, tree])
