"""Attention over frozen batches, in the interpreter: a captured step's launch gives what the step's own would give."""

from __future__ import annotations

import random
from unittest import mock

import pytest
import torch
from torch import Tensor

import tests.engine.compute.layers.triton.interpreted  # noqa: F401
from engine.cache.stores.packed import PackedKV
from engine.cache.stores.store import DenseKVStore
from engine.compute.attention.interface import AttnSpec
from engine.compute.attention.triton import launch, trial
from engine.compute.batch import Batch, SequenceRows
from engine.compute.runner.graphs import ForwardOptions, GraphKey, Graphs, key_of
from engine.compute.runner.inputs import StepInputs, shape_of
from engine.compute.runner.runner import Runner

CONTEXT, PAGES, HEADS, KV_HEADS, WIDTH = 512, 40, 4, 2, 32
TREE = (-1, 0, 0, 1)
CPU = torch.device("cpu")
pytestmark = pytest.mark.content("engine/compute/attention/triton")
STEPS = {
    "seven answers of eight": [(5, 1), (17, 1), (33, 1), (64, 1), (2, 1), (0, 1), (40, 1)],
    "a chain of seven": [(50, 7)],
    "two chains": [(20, 3), (37, 4)],
    "a tree": [(30, 4)],
}


class _OneGroup:
    num_groups = 1


def rows_of(name: str) -> list[SequenceRows]:
    order, rows = random.Random(1), []
    pages = order.sample(range(1, PAGES), PAGES - 1)
    for start, count in STEPS[name]:
        mine = [pages.pop() for _ in range(-(-(start + count) // 16))]
        parents = TREE if name == "a tree" else None
        rows.append(SequenceRows(list(range(count)), start, mine, count, parents))
    return rows


def arenas(kind: str) -> PackedKV:
    """Random numbers or codes on all pages, page 0 included."""
    pages = mock.Mock(page_table=torch.tensor([[[PAGES - 1]]]))
    pages.host.S = 1
    generator = torch.Generator().manual_seed(3)
    return trial.arenas(kind, (WIDTH, WIDTH), (4, 4), pages, torch.float32, generator, KV_HEADS)


def frozen(rows: list[SequenceRows]) -> tuple[GraphKey, Batch]:
    inputs = StepInputs(1, CPU, None, CONTEXT)
    model, kv = mock.Mock(uncaptured="", generation=0), mock.Mock(states=None)
    graphs = Graphs(mock.Mock(settings=()), inputs, model, kv, mock.Mock(), CONTEXT, mock.Mock(), mock.Mock())
    shape = shape_of(rows, 1)
    most = max(len(row.tokens) for row in rows)
    key = key_of(shape.sizes, most, max(shape.kv_len), CONTEXT, ForwardOptions())
    graphs._fill(key, rows)
    return key, graphs._frozen(key)


@pytest.mark.parametrize("kind", ["dense", "int8", "fp8", "int4"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.always if name == "two chains" else ()) for name in STEPS]
)
def test_a_frozen_batch_gives_what_the_step_gives(name: str, kind: str) -> None:
    rows, kv = rows_of(name), arenas(kind)
    store = DenseKVStore([(1, 1)], 1, torch.float32)
    step = Runner(_OneGroup(), store, None).batch(rows)  # type: ignore[arg-type]
    key, captured = frozen(rows)
    assert captured.tokens.shape[0] == key.bucket.T >= step.host.T
    q = torch.randn(key.bucket.T, HEADS, WIDTH, generator=torch.Generator().manual_seed(4))
    found: list[Tensor] = []
    for batch in (step, captured):
        out, _ = launch.attend(q[: batch.tokens.shape[0]], kv, AttnSpec(0.2), batch)
        found.append(out)
    assert torch.equal(found[1][: step.host.T], found[0]), "to the bit: both are cut alike"
    assert torch.isfinite(found[1]).all(), "padding too"
