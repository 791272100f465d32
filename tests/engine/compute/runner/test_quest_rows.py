"""Rows that choose pages (QUEST) see the same however the steps fall: chunks, recomputation, drafts, forks."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.cache.policies import KeepAll, PagePolicy, SparseReads, WindowWithSinks, keys_read
from engine.cache.stores.kinds import KVKind
from engine.cache.stores.store import DenseKVStore
from engine.cache.techniques.quest.policy import QuestPolicy
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import SequenceRows
from engine.compute.layers.numerics import Numerics
from engine.compute.models.arenas import new_store
from engine.compute.models.families.llama import Model as Llama
from engine.compute.runner.buffers import powers_of_two
from engine.compute.runner.runner import Runner
from engine.config.attention import LatentShape
from tests.kit.models import RandomWeights, deep, tokens

LAYERS, PAGES, PROMPT, LENGTH = 4, 60, 70, 150
DEEP = deep(LAYERS)
IDS = tokens(LENGTH)
FIRST = list(range(1, 11))
QUEST, DENSE = QuestPolicy(48, PROMPT), KeepAll()


class QuestRunner(Runner):
    """A runner of a random Llama; each sequence is known by its first page and has a policy."""

    def __init__(self, invariant: bool, policy: PagePolicy = QUEST, config=DEEP, buckets=None) -> None:
        numerics = Numerics(invariant)
        store = new_store(config, PAGES, torch.float32, "cpu", KVKind(bounds=True))
        super().__init__(Llama(config, RandomWeights(numerics)), store, AttentionDispatcher(numerics), policy=buckets)
        self.policies: dict[int, PagePolicy] = {}
        self.policy = policy

    def step(self, *rows: SequenceRows) -> Tensor:
        """Logits of the rows, each under its sequence's policy."""
        return self.forward([row._replace(policy=self.policies.get(row.pages[0], self.policy)) for row in rows]).logits

    def run(self, start: int, stop: int, pages: list[int] = FIRST, ids: list[int] = IDS) -> Tensor:
        """Logits of the rows [start, stop)."""
        return self.step(SequenceRows(ids[start:stop], start, pages, stop - start))


def token_by_token(host: QuestRunner) -> Tensor:
    """The prompt, then one token a step: logits of all rows."""
    return torch.cat([host.run(0, PROMPT), *(host.run(i, i + 1) for i in range(PROMPT, LENGTH))])


@functools.cache
def expected(invariant: bool, policy: PagePolicy = QUEST, config=DEEP) -> Tensor:
    """Logits of all rows, token by token."""
    return token_by_token(QuestRunner(invariant, policy, config))


def chunks(host: QuestRunner, size: int) -> Tensor:
    return torch.cat([host.run(i, min(i + size, LENGTH)) for i in range(0, LENGTH, size)])


def rejected_drafts(host: QuestRunner) -> Tensor:
    """Each step checks a chain of six tokens that are all wrong but the first."""
    parts = [host.run(0, PROMPT)]
    for i in range(PROMPT, LENGTH):
        count = min(6, 160 - i)
        wrong = [IDS[i], *tokens(count - 1, seed=i)]
        parts.append(host.step(SequenceRows(wrong, i, FIRST, count))[:1])
    return torch.cat(parts)


def accepted_drafts(host: QuestRunner) -> Tensor:
    """Chains of seven, all right, which cross from page to page anywhere in the chain."""
    return torch.cat([host.run(0, PROMPT), *(host.run(i, min(i + 7, LENGTH)) for i in range(PROMPT, LENGTH, 7))])


def recomputed(host: QuestRunner) -> Tensor:
    """Preempted at 120: other tokens take the pages, then everything is read again in chunks, on other pages."""
    begun = [host.run(0, PROMPT), *(host.run(i, i + 1) for i in range(PROMPT, 120))]
    host.run(0, 160, ids=tokens(160, seed=9))
    pages = [31, 22, 45, 3, 17, 50, 12, 8, 41, 29]
    again = torch.cat([host.run(0, 50, pages), host.run(50, 111, pages), host.run(111, 120, pages)])
    assert close(again, torch.cat(begun))
    return torch.cat([again, *(host.run(i, i + 1, pages) for i in range(120, LENGTH))])


def forked(host: QuestRunner) -> Tensor:
    """A second sequence shares all pages but the last one, which is copied; a third one's came back from the host."""
    parts = [host.run(0, PROMPT), *(host.run(i, i + 1) for i in range(PROMPT, 105))]
    host.kv.copy_page(7, 20)
    other = [*FIRST[:6], 20, 21, 22, 23]
    host.run(105, 108, ids=tokens(160, seed=3))
    data = host.kv.export_pages(other[:7])
    third = list(range(40, 50))
    host.kv.import_pages(third[:7], data)
    host.run(105, 130, other, tokens(160, seed=4))
    return torch.cat([*parts, *(host.run(i, i + 1, third) for i in range(105, LENGTH))])


def compacted(host: QuestRunner) -> Tensor:
    """A row's key waits two slots late while another takes its place, and is moved back, as nodes of a tree are."""
    parts = [host.run(0, PROMPT)]
    for i in range(PROMPT, LENGTH):
        late, right = (torch.tensor([FIRST[j // 16] * 16 + j % 16]) for j in (i + 2, i))
        parts.append(host.run(i, i + 1))
        host.kv.move_slots(right, late)
        host.run(i, i + 1, ids=tokens(LENGTH, seed=5))
        host.kv.move_slots(late, right)
    return torch.cat(parts)


def close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-4, atol=1e-4)


WAYS: list[Callable[[QuestRunner], Tensor]] = [
    *(lambda host, size=size: chunks(host, size) for size in (1, 7, 64, LENGTH)),
    rejected_drafts,
    accepted_drafts,
    recomputed,
    forked,
    compacted,
]
NAMES = ["chunks of 1", "of 7", "of 64", "whole", *(way.__name__ for way in WAYS[4:])]


@pytest.mark.parametrize("way", WAYS, ids=NAMES)
def test_no_way_changes_a_bit(way: Callable[[QuestRunner], Tensor]) -> None:
    assert torch.equal(way(QuestRunner(True)), expected(True))


@pytest.mark.parametrize("way", WAYS, ids=NAMES)
def test_without_the_switch_only_rounding_changes(way: Callable[[QuestRunner], Tensor]) -> None:
    assert close(way(QuestRunner(False)), expected(False))


def test_rows_of_the_answer_choose_and_others_do_not() -> None:
    dense, sparse = (expected(True, policy) for policy in (DENSE, QUEST))
    assert torch.equal(sparse[:PROMPT], dense[:PROMPT])
    assert not close(sparse[PROMPT:], dense[PROMPT:])
    # A row with no more pages than its budget reads them all.
    short = expected(True, QuestPolicy(96, PROMPT))
    assert torch.equal(short[:96], dense[:96])
    assert not torch.equal(short[96], dense[96])


@pytest.mark.parametrize("invariant", [True, False])
def test_a_budget_for_everything_is_dense(invariant: bool) -> None:
    sparse, dense = (expected(invariant, policy) for policy in (QuestPolicy(160, PROMPT), DENSE))
    assert torch.equal(sparse, dense)


def test_the_first_layers_and_windows_read_everything() -> None:
    shallow = DEEP.changed(num_layers=2, windows=(None, None), rotary=(True, True))
    windows = DEEP.changed(windows=(None, None, 40, 40))
    for config in (shallow, windows):
        sparse, dense = (expected(True, policy, config) for policy in (QUEST, DENSE))
        assert torch.equal(sparse, dense)


@pytest.mark.parametrize("invariant", [True, False])
@pytest.mark.parametrize("buckets", [None, powers_of_two])
def test_in_company(invariant: bool, buckets) -> None:
    """A prompt's chunk, a dense answer, and two that choose, one with another budget, step together."""
    alone = [expected(invariant, policy) for policy in (QUEST, DENSE, QuestPolicy(32, PROMPT))]
    host = QuestRunner(invariant, DENSE, buckets=buckets)
    tables = [FIRST, list(range(11, 21)), list(range(21, 31)), list(range(31, 41))]
    host.policies = {1: QUEST, 21: QuestPolicy(32, PROMPT), 31: QUEST}
    for table in tables[:3]:
        host.run(0, 140, table)
    rows = [SequenceRows(IDS[140:141], 140, table, 1) for table in tables[:3]]
    rows.insert(1, SequenceRows(IDS[:50], 0, tables[3], 50))
    first, prompt, *others = host.step(*rows).split([1, 50, 1, 1])
    same = torch.equal if invariant else close
    for found, whole in zip((first, *others), alone, strict=True):
        assert same(found, whole[140:141])
    assert same(prompt, alone[0][:50])
    host = QuestRunner(invariant, buckets=buckets)
    for table in tables[:2]:
        host.run(0, 140, table)
    both = host.step(*(SequenceRows(IDS[140:145], 140, table, 5) for table in tables[:2]))
    assert same(both, alone[0][140:145].repeat(2, 1))


def test_trees_are_refused() -> None:
    host = QuestRunner(True)
    host.run(0, 120)
    with pytest.raises(ValueError, match="not for drafted trees"):
        host.step(SequenceRows(IDS[120:123], 120, FIRST, 1, (-1, 0, 0)))


def test_a_store_without_bounds_is_refused() -> None:
    host = QuestRunner(True)
    host.kv = DenseKVStore([(2, 8)] * LAYERS, PAGES, torch.float32)
    host.run(0, PROMPT)
    with pytest.raises(ValueError, match="keeps none"):
        host.run(PROMPT, PROMPT + 1)


def test_latents_are_refused() -> None:
    with pytest.raises(ValueError, match="latents"):
        new_store(DEEP.changed(latent=LatentShape(8, 8, 4, 8)), PAGES, torch.float32, "cpu", KVKind(bounds=True))


@pytest.mark.parametrize("budget", [15, 0, -16])
def test_a_budget_below_one_page_is_refused(budget: int) -> None:
    with pytest.raises(ValueError, match="less than one page"):
        QuestPolicy(budget, 3)


def test_the_policy_follows_from_the_index() -> None:
    policy = QuestPolicy(50, 40)
    assert policy.chosen(np.arange(100)).tolist() == [0] * 48 + [3] * 52
    assert [policy.restricts(stop) for stop in (0, 48, 49)] == [False, False, True]
    assert QuestPolicy(16, 40).chosen(np.arange(30, 50)).tolist() == [0] * 10 + [1] * 10
    assert policy.dead_pages(90) == (0, 0)
    assert [policy.kept_pages(length) for length in (0, 1, 16, 17)] == [0, 1, 1, 2]
    sparse = SparseReads(0.5, 2)
    assert keys_read(policy, 48, sparse) == 48
    assert keys_read(policy, 49, sparse) == 0.5 * 49 + 0.5 * (4 + 3 * 16 * 2)
    assert keys_read(WindowWithSinks(64), 200, sparse) == 200 - 128 + 4
    assert keys_read(DENSE, 200, sparse) == 200
    assert policy == QuestPolicy(63, 40)
    assert policy != QuestPolicy(64, 40)
