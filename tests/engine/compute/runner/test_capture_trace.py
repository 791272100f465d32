"""What a captured step asks of a GPU, taken down without one: the same for every step of its key, and no waits."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

pytest.importorskip("triton")

from engine.cache.pool import pages_for
from engine.cache.stores.kinds import KVKind
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import Batch, SequenceRows
from engine.compute.models.arenas import new_store
from engine.compute.models.registry import family
from engine.compute.runner.buffers import sixteens
from engine.compute.runner.graphs import ForwardOptions, Graphs, key_of
from engine.compute.runner.inputs import StepInputs, shape_of
from tests.engine.compute.models.fake_cuda import CUDA, on_cuda
from tests.gpu.pretended import LLAMA_8B, Trace, Weights, pretended, shortened

CONTEXT = 32_768
TREE = (-1, 0, 0, 1, 1, -1, 5, 2)


def rows(start: int, count: int, parents: tuple[int, ...] | None = None, first: int = 1) -> SequenceRows:
    pages = list(range(first, first + pages_for(start + count)))
    return SequenceRows([7] * count, start, pages, count, parents)


STEPS = {
    "one answer": ([rows(900, 1)], [rows(3000, 1, first=40)]),
    "seven and eight answers": ([rows(600 * i, 1) for i in range(1, 8)], [rows(520 * i, 1) for i in range(1, 9)]),
    "a chain": ([rows(700, 5)], [rows(2000, 5, first=9)]),
    "two chains": ([rows(700, 3), rows(1200, 4)], [rows(900, 5), rows(600, 3)]),
    "a tree": ([rows(700, 8, TREE)], [rows(1500, 8, TREE)]),
}
"""Two steps of the same key each."""


def trace_of(frozen: Batch, kind: KVKind) -> Trace:
    config = shortened(LLAMA_8B, 3)
    with pretended() as trace:
        source = Weights(config.dtype)
        model = family(config.architecture).Model(config, source)
        model.reserve(CONTEXT)
        kv = new_store(config, 3, config.dtype, CUDA, kind)
        attention = AttentionDispatcher(source.numerics)
        model.forward(on_cuda(frozen), kv, attention)
        moved = on_cuda(frozen)
        trace.clear()
        model.forward(moved, kv, attention)
    assert not attention.uncaptured
    return trace


@pytest.mark.parametrize("kind", [KVKind(), KVKind("int8"), KVKind("fp8"), KVKind("int4")], ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", list(STEPS))
def test_steps_of_a_key_launch_the_same(name: str, kind: KVKind) -> None:
    """The same operators and kernels, shapes, strides, numbers, constants and grids: what a graph repeats."""
    inputs = StepInputs(1, torch.device("cpu"), sixteens, CONTEXT)
    parts = [
        mock.Mock(settings=()),
        inputs,
        mock.Mock(uncaptured=""),
        mock.Mock(states=None),
        mock.Mock(),
        CONTEXT,
        mock.Mock(),
        mock.Mock(),
    ]
    graphs = Graphs(*parts)  # type: ignore[arg-type]
    traces, keys = [], []
    for step in STEPS[name]:
        shape = shape_of(step, 1)
        key = key_of(shape.sizes, max(len(each.tokens) for each in step), max(shape.kv_len), CONTEXT, ForwardOptions())
        graphs._fill(key, step)
        traces.append(trace_of(graphs._frozen(key), kind))
        keys.append(key)
    assert keys[0] == keys[1]
    assert traces[0].nodes == traces[1].nodes
    for trace in traces:
        assert (trace.waits, trace.copies, trace.pinned) == ([], [], 0), trace.text()
        assert len(trace.nodes) <= 3 * 10 + 10, trace.text()
