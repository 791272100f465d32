"""Which variants of the attention kernels a chat meets, and that they were tried and compiled at load."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import cache
from typing import Any
from unittest import mock

import pytest
import torch

pytest.importorskip("triton")

from engine.cache.pool import pages_for
from engine.cache.stores.packed import PackedKV
from engine.cache.stores.store import DenseKVStore
from engine.compute.attention.interface import AttnSpec
from engine.compute.attention.triton import launch, trial
from engine.compute.attention.triton.backend import TritonAttention
from engine.compute.batch import ROW_CLASSES, Batch, SequenceRows
from engine.compute.native.triton_launch import gathering
from engine.compute.runner import ahead
from engine.compute.runner.buffers import Bucket, Buffers, sixteens
from engine.compute.runner.graphs import ForwardOptions, Graphs, key_of
from engine.compute.runner.inputs import StepInputs
from engine.compute.runner.runner import Runner
from tests.gpu.machine_code import specialised

HEADS, KV_HEADS, WIDTH = 32, 8, 128
CONTEXT = 32_768
CARDS = (132, 128, 28)
"""Multiprocessors of an H100, an RTX 4090 and an RTX 3060."""


class _OneGroup:
    num_groups = 1


def runner() -> Runner:
    store = DenseKVStore([(1, 1)], 1, torch.float32)
    return Runner(_OneGroup(), store, None, policy=sixteens, context=CONTEXT)  # type: ignore[arg-type]


@cache
def arenas(kind: str) -> PackedKV:
    """Kinds in which heads of 128 channels lie, on as few pages as can be: nothing is read."""
    batch = trial.batch_of([(3, 1)])
    generator = torch.Generator().manual_seed(1)
    return trial.arenas(kind, (WIDTH, WIDTH), (4, 4), batch, torch.bfloat16, generator, KV_HEADS)


def variants(kind: str, batches: Sequence[Batch], processors: int) -> set[Hashable]:
    """What these batches compile, by Triton's own signature: with the addresses that they really have."""
    kv, backend = arenas(kind), TritonAttention()
    with mock.patch.object(launch, "processors", return_value=processors), gathering() as found:
        for batch in batches:
            q = torch.zeros(batch.tokens.shape[0], HEADS, WIDTH, dtype=torch.bfloat16)
            backend.attend(q, kv, AttnSpec(0.1), batch)
    return {signature_of(one) for one in found}


def tried_variants(kind: str) -> set[Hashable]:
    """What the trial compiles, taken down where it launches."""
    with gathering() as found, mock.patch.object(trial, "far", return_value=False):
        traits = trial.AttnTraits(kind, (WIDTH, WIDTH), torch.bfloat16)
        assert trial.compare(traits, torch.device("cpu")) is None
    return {signature_of(one) for one in found}


def signature_of(one: Any) -> Hashable:
    """All that decides which variant a launch compiles."""
    signature, constants, attributes = specialised(one)
    options = sorted((name, value) for name, value in one.keywords.items() if name.startswith("num_"))
    return one.kernel.fn.__name__, str(signature), str(constants), str(attributes), str(options)


def chat(length: int) -> Iterator[list[SequenceRows]]:
    """One conversation: turns of 30 to 900 tokens read in chunks, answers in between, up to a length."""
    turns = (700, 90, 30, 300, 12, 900, 150)
    at, turn = 0, 0
    while at < length:
        left = turns[turn % len(turns)]
        while left:
            rows = min(left, 512)
            yield [_rows(at, rows, 1)]
            at, left = at + rows, left - rows
        for _ in range(0, 400, 7):
            yield [_rows(at, 1, 1)]
            at += 7
        turn += 1


def _rows(start: int, count: int, wanted: int) -> SequenceRows:
    pages = list(range(1, 1 + pages_for(start + count)))
    return SequenceRows([0] * count, start, pages, wanted)


@pytest.mark.parametrize("processors", CARDS)
@pytest.mark.parametrize("kind", ["dense", "int8", "fp8", "int4"])
def test_a_chat_of_8000_tokens_meets_few_variants_and_all_were_compiled_at_load(kind: str, processors: int) -> None:
    made = runner()
    met: set[Hashable] = set()
    for rows in chat(8000):
        met |= variants(kind, [made.batch(rows)], processors)
    compiled: set[Hashable] = set()
    for rows in ahead.steps(CONTEXT, 1):
        compiled |= variants(kind, [made.batch(rows)], processors)
    assert 2 <= len(met) <= 6, met
    assert met <= compiled, met - compiled


@pytest.mark.parametrize("kind", ["dense", "int4"])
def test_the_variant_that_is_tried_is_the_one_that_is_served(kind: str) -> None:
    """For every bucket: an argument at another address, or another number, may compile another kernel."""
    made = runner()
    tried = tried_variants(kind)
    for count in ROW_CLASSES:
        decoding = made.batch([_rows(5000 + 100 * i, 1, 1) for i in range(count)])
        served = variants(kind, [decoding], 132)
        assert served <= tried, count
        checking = made.batch([_rows(5000, count, count)])
        assert variants(kind, [checking], 132) <= tried, count


@pytest.mark.parametrize("kind", ["dense", "int8", "fp8", "int4"])
def test_captured_steps_are_cut_as_eager_ones(kind: str) -> None:
    """So that a step has the same bits whether it is captured or not."""
    made = runner()
    inputs = StepInputs(1, torch.device("cpu"), sixteens, CONTEXT)
    model = mock.Mock(uncaptured="")
    graphs = Graphs(
        mock.Mock(settings=()), inputs, model, mock.Mock(states=None), mock.Mock(), CONTEXT, mock.Mock(), mock.Mock()
    )
    steps = [[_rows(700 * (i + 1), 1, 1) for i in range(count)] for count in (1, 2, 3, 5, 7, 20, 32)]
    steps += [[_rows(length, rows, rows)] for length in (3, 600, 9000) for rows in (2, 5, 7, 13, 40)]
    steps += [[_rows(300, 3, 3), _rows(900, 4, 4), _rows(5000, 2, 2)]]
    for rows in steps:
        batch = made.batch(rows)
        host = batch.host
        key = key_of(Bucket(host.T, host.S, host.L, False), host.max_rows, host.max_kv, CONTEXT, ForwardOptions())
        frozen = graphs._frozen(key)
        eager_cut, frozen_cut = (_cut(kind, each) for each in (batch, frozen))
        assert eager_cut == frozen_cut, rows
        assert variants(kind, [batch], 132) == variants(kind, [frozen], 132)


def _cut(kind: str, batch: Batch) -> object:
    q = torch.zeros(batch.tokens.shape[0], HEADS, WIDTH, dtype=torch.bfloat16)
    with mock.patch.object(launch, "processors", return_value=132):
        plan = launch.plan(q, arenas(kind), AttnSpec(0.1), batch)
    return plan.grid[1:], plan.keywords


def test_every_field_of_every_bucket_begins_at_16_bytes() -> None:
    for groups in (1, 2):
        buffers = Buffers(groups, torch.device("cpu"))
        for rows in (*ROW_CLASSES, 65, 513, 3000):
            for seqs in {1, 3, rows}:
                for tree in (False, True):
                    memory = buffers.take(Bucket(rows, seqs, seqs, tree))
                    for name, part in memory.device._asdict().items():
                        assert part.data_ptr() % 16 == 0, (name, rows, seqs)
                    assert all(row.data_ptr() % 16 == 0 for row in memory.device.slots)
