"""The one forward: the same logits however rows are batched, cut, placed and padded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from engine.cache.stores.store import DenseKVStore
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import SequenceRows
from engine.compute.runner.buffers import BucketPolicy, powers_of_two
from engine.compute.runner.runner import Runner
from tests.kit.models import PAGES, VOCABULARY, ToyModel, llama, pages_for, tokens


def toy(policy: BucketPolicy | None = None) -> Runner:
    return Runner(ToyModel(), DenseKVStore([(1, 8)] * 2, PAGES, torch.float32), AttentionDispatcher(), policy=policy)


RUNNERS = [toy, llama]


def whole(runner: Runner, ids: list[int], pages: list[int]) -> Tensor:
    return runner.forward([SequenceRows(ids, 0, pages, len(ids))]).logits


@pytest.mark.parametrize("make", RUNNERS)
@pytest.mark.parametrize("chunk", [1, 7, 16, 50])
@pytest.mark.parametrize("policy", [None, powers_of_two])
@pytest.mark.parametrize("seed", [None, 4])
def test_chunks_give_the_whole_logits(make: Any, chunk: int, policy: BucketPolicy | None, seed: int | None) -> None:
    ids = tokens(75)
    expected = whole(make(), ids, next(pages_for(75)))
    runner, pages = make(policy), next(pages_for(75, seed))
    parts = []
    for start in range(0, 75, chunk):
        part = ids[start : start + chunk]
        parts.append(runner.forward([SequenceRows(part, start, pages, len(part))]).logits)
    torch.testing.assert_close(torch.cat(parts), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", RUNNERS)
@pytest.mark.parametrize("policy", [None, powers_of_two])
def test_a_ragged_batch_gives_each_sequence_its_own_logits(make: Any, policy: BucketPolicy | None) -> None:
    starts, counts, wants = (30, 0, 12, 63), (1, 17, 6, 1), (1, 0, 4, 1)
    expected = []
    for s, (start, n, want) in enumerate(zip(starts, counts, wants, strict=True)):
        expected.append(whole(make(), tokens(start + n, s), next(pages_for(64)))[start + n - want :])
    runner, tables = make(policy), list(pages_for(64, 2))
    rows = []
    for s, (start, n, want) in enumerate(zip(starts, counts, wants, strict=True)):
        ids = tokens(start + n, s)
        if start:
            runner.forward([SequenceRows(ids[:start], 0, tables[s])])
        rows.append(SequenceRows(ids[start:], start, tables[s], want))
    out = runner.forward(rows)
    torch.testing.assert_close(out.logits, torch.cat(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", RUNNERS)
def test_a_tree_gives_each_node_the_logits_of_its_path(make: Any) -> None:
    parents, prefix = (-1, 0, 0, 2, 1), tokens(37)
    nodes, paths = [3, 14, 15, 9, 26], ([0], [0, 1], [0, 2], [0, 2, 3], [0, 1, 4])
    runner, (first, second, *_) = make(), list(pages_for(64, 3))
    runner.forward([SequenceRows(prefix, 0, first)])
    runner.forward([SequenceRows(prefix, 0, second)])
    mixed = [SequenceRows(nodes, 37, first, 5, parents), SequenceRows([7, 8], 37, second, 1)]
    out = runner.forward(mixed).logits
    for row, path in enumerate(paths):
        chain = prefix + [nodes[j] for j in path]
        torch.testing.assert_close(out[row], whole(make(), chain, next(pages_for(64)))[-1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(out[5], whole(make(), [*prefix, 7, 8], next(pages_for(64)))[-1], rtol=1e-4, atol=1e-4)


def test_batch_invariant_logits_are_equal_to_the_bit() -> None:
    ids = tokens(75)
    expected = whole(llama(batch_invariant=True), ids, next(pages_for(75)))
    for chunk in (1, 7, 64):
        runner, (mine, other, *_) = llama(batch_invariant=True), list(pages_for(80, 6))
        runner.forward([SequenceRows(tokens(40, 9), 0, other)])
        parts = []
        for start in range(0, 75, chunk):
            part = ids[start : start + chunk]
            rows = [SequenceRows([start % VOCABULARY], 40, other, 1), SequenceRows(part, start, mine, len(part))]
            parts.append(runner.forward(rows).logits[1:])
        assert torch.equal(torch.cat(parts), expected)


@pytest.mark.parametrize("make", RUNNERS)
@pytest.mark.parametrize("policy", [None, powers_of_two])
def test_layer_ranges_compose(make: Any, policy: BucketPolicy | None) -> None:
    rows = [SequenceRows(tokens(21), 0, next(pages_for(32)), 3)]
    expected = make(policy).forward(rows, want_hidden=frozenset({0, 1}))
    runner = make(policy)
    lower = runner.forward(rows, layers=(0, 1))
    assert lower.logits.shape == (0, VOCABULARY)
    torch.testing.assert_close(lower.hidden[1], expected.hidden[1])
    assert expected.hidden[0].shape[0] == lower.hidden[1].shape[0] == 21
    upper = runner.forward(rows, layers=(1, 2), hidden_in=lower.hidden[1])
    torch.testing.assert_close(upper.logits, expected.logits)


def test_padding_rows_write_only_page_0() -> None:
    runner = toy(powers_of_two)
    rows = [SequenceRows(tokens(3), 0, [5], 1), SequenceRows([1], 0, [9], 0), SequenceRows([2], 0, [2], 1)]
    out = runner.forward(rows)
    assert out.logits.shape == (2, VOCABULARY)
    batch = runner.model.batch  # type: ignore[attr-defined]
    assert (batch.tokens.shape[0], batch.kv_len.shape[0], batch.host.T, batch.host.S) == (8, 4, 5, 3)
    assert batch.row_start.tolist() == [0, 3, 4, 5, 5]
    assert batch.kv_len.tolist() == [3, 1, 1, 0]
    keys = runner.kv.view(0).k.view(PAGES, 16, -1)
    written = keys.abs().sum(-1).nonzero().tolist()
    assert {tuple(place) for place in written} == {(0, 0), (2, 0), (5, 0), (5, 1), (5, 2), (9, 0)}


def test_a_bucket_keeps_its_addresses_and_forgets_its_past() -> None:
    runner = toy(powers_of_two)
    long = runner.batch([SequenceRows([1], 40, [3, 4, 5], 1), SequenceRows([1], 20, [7, 8], 1)])
    assert long.page_table[0, :, :4].tolist() == [[3, 4, 5, 0], [7, 8, 0, 0]]
    addresses = [part.data_ptr() for part in (long.tokens, long.placement.slots, long.page_table, long.kv_len)]
    grown = runner.batch([SequenceRows([1], 48, [3, 4, 5, 6], 1), SequenceRows([1], 21, [7, 8], 1)])
    assert grown.page_table[0, :, :5].tolist() == [[3, 4, 5, 6, 0], [7, 8, 0, 0, 0]]
    assert [
        part.data_ptr() for part in (grown.tokens, grown.placement.slots, grown.page_table, grown.kv_len)
    ] == addresses
    other = runner.batch([SequenceRows([1], 3, [9], 1), SequenceRows([1], 21, [7, 8], 1)])
    assert other.page_table[0, 0, 0] == 9
    assert other.placement.slots.tolist() == [[9 * 16 + 3, 8 * 16 + 5]]
    three = runner.batch([SequenceRows([1], 3, [9], 1)] * 3)
    assert three.page_table[0, :3, 0].tolist() == [9] * 3
    assert three.tokens.shape[0] == 4


def test_the_host_mirror_says_what_the_tensors_say() -> None:
    runner = toy()
    batch = runner.batch([SequenceRows(tokens(20), 10, [6, 7], 2), SequenceRows([4], 31, [9, 3, 8], 1)])
    host = batch.host
    assert (host.T, host.S, host.L, host.max_rows, host.max_kv) == (21, 2, 3, 20, 32)
    assert (list(host.row_start), list(host.kv_len)) == (batch.row_start.tolist(), batch.kv_len.tolist())
    assert [list(row) for row in host.first_page] == [[6, -1]]
    assert batch.placement.first_slot == [-1]
    assert batch.positions.tolist() == [*range(10, 30), 31]
    assert batch.placement.slots.tolist() == [[*range(6 * 16 + 10, 7 * 16 + 14), 3 * 16 + 15]]
    assert batch.want_logits.tolist() == [18, 19, 20]
    assert runner.batch([SequenceRows(tokens(20), 10, [6, 7])]).placement.first_slot == [6 * 16 + 10]
    assert batch.ancestors is None


def test_consecutive_pages_are_told_from_scattered_ones() -> None:
    runner = toy()

    def first_page(pages: list[int], start: int) -> int:
        return runner.batch([SequenceRows([1], start, pages, 1)]).host.first_page[0][0]

    pages = [4, 5]
    assert first_page(pages, 20) == 4
    pages.append(6)  # the caller's own list grows
    assert first_page(pages, 40) == 4
    pages.append(9)
    assert first_page(pages, 47) == 4  # the last page is not read yet
    assert first_page(pages, 48) == -1
    pages.append(10)
    assert first_page(pages, 64) == -1
    pages[3:] = [7, 8]
    assert first_page(pages, 64) == 4
    assert first_page([4, 5], 20) == 4
    assert first_page([5, 4], 20) == -1
    assert first_page([5, 4], 3) == 5


def test_layer_groups_have_tables_of_their_own() -> None:
    model = ToyModel()
    model.num_groups = 2
    runner = Runner(model, DenseKVStore([(1, 8)] * 2, PAGES, torch.float32), AttentionDispatcher())
    batch = runner.batch([SequenceRows([1, 2], 15, [4, 5], 0, None, ([0, 8],))])
    assert batch.page_table[:, 0, :2].tolist() == [[4, 5], [0, 8]]
    assert batch.placement.slots.tolist() == [[79, 80], [15, 128]]
    assert batch.placement.first_slot == [79, -1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (SequenceRows([1, 2], 15, [3], 1), "do not cover the 17 tokens"),
        (SequenceRows([], 3, [3], 0), "0 logits wanted of 0 rows"),
        (SequenceRows([1], 3, [3], 2), "2 logits wanted of 1 rows"),
        (SequenceRows([1, 2], 3, [3], 1, parents=(-1,)), "a tree of 2 rows with 1 parents"),
        (SequenceRows([1, 2], 3, [3], 1, parents=(-1, 1)), "must be an earlier row"),
        (SequenceRows([1] * 65, 0, [3, 4, 5, 6, 7], 1, parents=tuple(range(-1, 64))), "at most 64"),
    ],
)
def test_rows_that_make_no_sense_are_refused(row: SequenceRows, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        toy().batch([row])
    with pytest.raises(ValueError, match="at least one sequence"):
        toy().batch([])
