"""What the host does for a decoding step on a GPU, timed without one, in units of a Python loop timed beside it.

    python tests/gpu/host_cost.py [--layers 32] [--answers 1 8 32]

Triton's own launch code runs, over a driver that launches nothing; kernels are compiled for sm_90 first. Torch's
operators run on small tensors on the processor, which takes the host about as long as launching them. Left out is the
driver's part of a launch, about 3 us each. The unit is a loop of 500,000 additions in Python: 10 to 12 ms on a desktop
processor of 5 GHz, 16 to 18 on a server's.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from torch import Tensor

from engine.cache.pool import pages_for
from engine.compute.attention import writing
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.attention.triton import launch, pack_trial
from engine.compute.attention.triton.backend import TritonAttention
from engine.compute.batch import SequenceRows
from engine.compute.layers.activation import Gated
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.linear.dense import Dense
from engine.compute.layers.norm import RMSNorm
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.triton import fused
from engine.compute.models.arenas import new_store
from engine.compute.models.registry import family
from engine.compute.runner.buffers import sixteens
from engine.compute.runner.recorders import Captured, CudaRecorder, Forward, GraphRecorder
from engine.compute.runner.runner import Runner
from engine.config.model import ModelConfig
from tests.gpu.kernel_kinds import KINDS
from tests.gpu.pretended import LLAMA_8B, shortened
from tests.gpu.pretended_driver import Driver, triton_driver

CPU = torch.device("cpu")
CONTEXT = 4096


class Weights:
    """A `WeightSource` of 4-bit layers in groups of 128, for Kvasir's kernels."""

    dtype, device, numerics = torch.bfloat16, CPU, Numerics()

    def linear(self, prefix: str, names: Sequence[str], sizes: Sequence[int], in_features: int, bias: bool) -> Linear:
        return KINDS["int4 g128"](sum(sizes), in_features, self.dtype, CPU, self.numerics).layer

    def vector(self, name: str, size: int) -> Tensor:
        return torch.ones(size, dtype=self.dtype)

    def embedding(self, name: str, rows: int, columns: int) -> Tensor:
        return torch.zeros(rows, columns, dtype=self.dtype)

    def head(self, table: Tensor | None, rows: int, columns: int) -> Linear:
        return Dense(torch.zeros(rows, columns, dtype=self.dtype), None, self.numerics)


def config(layers: int) -> ModelConfig:
    """As many layers, kernels and operators as Llama 8B has, narrow enough for a processor."""
    narrow = {"vocab_size": 256, "hidden_size": 512, "intermediate_size": 512, "num_heads": 4, "num_kv_heads": 1}
    return shortened(LLAMA_8B, layers).changed(max_position=CONTEXT, **narrow)


@contextmanager
def on_a_pretended_gpu() -> Any:
    """Inside, Kvasir's kernels are chosen and launched as on a GPU, over tensors on the processor."""

    def added(norm: RMSNorm, x: Tensor, more: Tensor, scale: float = 1.0) -> Tensor:
        return fused.add_norm(x, more, scale, norm.weight, norm.eps)

    def gated(layer: Gated, gate_up: Tensor) -> Tensor:
        return fused.gate(gate_up, "silu")

    def written(store: Any, layer: int, qk: Tensor, heads: int, v: Tensor, rope: Any, to: Any) -> Tensor:
        assert writing.declines(store, layer, qk, rope) is None
        return writing._by_kernels(store, layer, qk, heads, v, rope, to)

    with ExitStack() as stack:
        stack.enter_context(triton_driver(90))
        for owner, name, value in (
            (TritonAttention, "declines", lambda *_: None),
            (launch, "processors", lambda _: 132),
            (RMSNorm, "forward_added", added),
            (Gated, "__call__", gated),
            (pack_trial, "disagrees", lambda *_: None),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        stack.enter_context(mock.patch("engine.compute.layers.attention.write_rotated", written))
        yield


class Player(GraphRecorder):
    """A graph whose replay costs nothing: what is left is the host's part of a captured step."""

    traits = CudaRecorder.traits

    def record(self, run: Forward) -> Captured:
        return Captured(lambda: None, run())


def loop() -> float:
    """Seconds of the unit, the least of a few."""
    times = []
    for _ in range(5):
        began = time.thread_time()
        x = 0
        for i in range(500_000):
            x += i
        times.append(time.thread_time() - began)
    return min(times)


def least(step: Callable[[], object], times: int = 30) -> float:
    """Seconds of the host's thread, the least of many."""
    found = []
    for _ in range(times):
        began = time.thread_time()
        step()
        found.append(time.thread_time() - began)
    return min(found)


def runner(layers: int, captured: bool, numerics: Numerics) -> Runner:
    shape = config(layers)
    model = family(shape.architecture).Model(shape, Weights())  # type: ignore[arg-type]
    store = new_store(shape, 64 * pages_for(1100), torch.bfloat16)
    recorder = Player() if captured else None
    attention = AttentionDispatcher(numerics, [TritonAttention()])
    return Runner(model, store, attention, CPU, sixteens, CONTEXT, recorder, numerics)


def steps_of(answers: int) -> Callable[[], list[SequenceRows]]:
    """Rows of decoding steps, each a token further."""
    each = pages_for(1100)
    tables = [list(range(1 + each * i, 1 + each * (i + 1))) for i in range(answers)]
    place = 1000

    def rows() -> list[SequenceRows]:
        nonlocal place
        place = 1000 + (place - 999) % 90
        return [SequenceRows([1], place, pages, 1) for pages in tables]

    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--answers", type=int, nargs="+", default=[1, 8, 32])
    options = parser.parse_args()
    torch.set_num_threads(1)
    numerics = Numerics(cascade=False)
    with on_a_pretended_gpu():
        eager, graphed = runner(options.layers, False, numerics), runner(options.layers, True, numerics)
        for answers in options.answers:
            rows = steps_of(answers)
            for made in (eager, graphed):
                for _ in range(4):
                    made.forward(rows())
            Driver.launches = 0
            eager.forward(rows())
            launches = Driver.launches
            assert graphed.eager == "", graphed.eager
            unit, slow, fast = (
                loop(),
                least(lambda r=rows: eager.forward(r())),
                least(lambda r=rows: graphed.forward(r())),
            )
            unit = min(unit, loop())
            figures = (
                f"eager step {1e3 * slow:6.2f} ms = {slow / unit:5.3f} loops ({launches} launches of Triton)",
                f"captured {1e3 * fast:6.3f} ms = {fast / unit:6.4f} loops",
                f"a loop takes {1e3 * unit:.1f} ms",
            )
            print(f"{answers:3} answers: {', '.join(figures)}")


if __name__ == "__main__":
    main()
