"""How fast the Triton kernels are on this machine's GPU, beside torch's operators.

    python tests/gpu/bench_kernels.py [--kinds TEXT ...] [--rows 1 2 4 8 16 64 128 256 512] [--json FILE]

Each figure: a CUDA graph of 50 products over weights that rotate through more than the level-2 cache holds, the median
of 20 replays, in microseconds a product; the packed bytes read in that time as GB/s, and as a share of what a read-only
pass over 2 GB reaches here. The weights are random, the same few rows again and again, which no kernel can tell.
Nothing is a figure about a model. ``--dry-run`` checks the script on a CPU, in Triton's
interpreter (TRITON_INTERPRET=1), in tiny sizes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from engine.compute.layers.linear.triton.runtime import Tile

SHAPES = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096))
"""Output and input features of a Llama 8B: q, k and v; o; gate and up; down; the head."""
ROWS = (1, 2, 4, 8, 16, 64, 128, 256, 512)
KINDS = ("int4 g128", "int4 g64", "NF4", "int8 rows", "Q4_K", "Q6_K")
ROTATED, READ = 512 << 20, 2 << 30
CALLS, REPLAYS = 50, 20
MADE_BY_TORCH = 1 << 15
"""Output features up to which torch's own packed weights are made, on the processor."""


class Figure(NamedTuple):
    """``error``: the largest difference from a product in float64, as a share of the largest value."""

    what: str
    outputs: int
    inputs: int
    rows: int
    microseconds: float
    low: float
    high: float
    gigabytes_per_second: float
    share_of_read: float
    error: float


class Case(NamedTuple):
    """``calls`` are the same product over different copies of the weights, ``size`` bytes each; ``weight`` is what
    belongs to the first output features. They are measured from ``least`` to ``most`` rows.
    """

    what: str
    calls: list[Callable[[Tensor], Tensor]]
    size: int
    weight: Tensor
    least: int = 1
    most: int = 1 << 30


def copies(size: int, dry: bool) -> int:
    return 1 if dry else max(1, -(-ROTATED // size))


def ours(kind: str, outputs: int, inputs: int, dtype: torch.dtype, device: torch.device, dry: bool) -> Iterator[Case]:
    """The product that is served, and beside it those that would serve if the numbers in runtime.py were others."""
    from engine.compute.layers.linear.triton.plane_layer import PlaneLinear
    from engine.compute.layers.linear.triton.runtime import FEW_ROWS, FIXED, MANY_ROWS
    from engine.compute.layers.numerics import Numerics
    from tests.gpu import kernel_kinds

    made = kernel_kinds.tall(kernel_kinds.KINDS[kind], outputs, inputs, dtype, device, Numerics())
    layers = [made.layer]
    for _ in range(copies(made.layer.storage_size(), dry) - 1):
        copy = object.__new__(type(made.layer))
        copy.__dict__.update(made.layer.__dict__)
        for name in made.layer.held:
            tensor = getattr(copy, name)
            setattr(copy, name, None if tensor is None else tensor.clone())
        layers.append(copy)
    size, weight = made.layer.storage_size(), made.weight
    yield Case(kind, [layer.forward for layer in layers], size, weight)
    if isinstance(made.layer, PlaneLinear):
        fixed = [lambda x, layer=layer: layer.product(x, x.dtype, FIXED) for layer in layers]
        yield Case(f"{kind}, 16 rows a tile", fixed, size, weight, FEW_ROWS + 1, MANY_ROWS)
        yield Case(f"{kind}, dequantised", [layer.by_blocks for layer in layers], size, weight, FEW_ROWS + 1)


def swept(case: Case, tiles: Sequence[Tile]) -> Iterator[Case]:
    """The products of one of :func:`ours`, cut up in other ways than the one that is served."""

    for cut in tiles:
        what = f"{case.what}, {cut.outputs} outputs a tile, {cut.slices} slices, {cut.stages} stages"
        layers = [cast(MethodType, call).__self__ for call in case.calls]
        calls = [lambda x, layer=layer, cut=cut: layer.product(x, x.dtype, cut) for layer in layers]
        yield case._replace(what=what, calls=calls)


def sixteen_bit(outputs: int, inputs: int, dtype: torch.dtype, device: torch.device, dry: bool) -> Case:
    weight = (torch.randn(outputs, inputs, device=device) * 0.02).to(dtype)
    size = 2 * weight.numel()
    held = [weight, *(weight.clone() for _ in range(copies(size, dry) - 1))]
    return Case(
        "torch linear, 16 bits", [lambda x, w=w: F.linear(x, w) for w in held], size, weight[:512].float().cpu()
    )


def torch_int4(outputs: int, inputs: int, device: torch.device) -> Case:
    from engine.compute.layers.linear.base import Target
    from engine.compute.layers.linear.int4_cuda import CudaInt4Linear
    from engine.compute.layers.linear.triton.int4 import Int4Sample
    from engine.compute.layers.numerics import Numerics

    part = Int4Sample(outputs, inputs, 128, torch.bfloat16, True)
    first = CudaInt4Linear(part.shape, Target(torch.bfloat16, device, Numerics()), device)
    first.fill([part])
    layers = [first]
    for _ in range(copies(first.storage_size(), False) - 1):
        copy = object.__new__(CudaInt4Linear)
        copy.__dict__.update(first.__dict__)
        copy.packed, copy.scale_zero = first.packed.clone(), first.scale_zero.clone()
        layers.append(copy)
    return Case("torch int4 g128", [layer.forward for layer in layers], first.storage_size(), part.weight())


def timed(calls: list[Callable[[Tensor], Tensor]], x: Tensor, replays: int) -> list[float]:
    """Seconds a product, of each replay of a graph of CALLS products; without a GPU, of single calls."""
    if x.device.type != "cuda":
        begun = time.perf_counter()
        calls[0](x)
        return [time.perf_counter() - begun]
    for call in calls:
        call(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for place in range(CALLS):
            calls[place % len(calls)](x)
    seconds = []
    for _ in range(replays + 2):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3 / CALLS)
    return seconds[2:]


def read_ceiling(device: torch.device, dry: bool) -> float:
    """Bytes a second of a reduction over more than any cache holds."""
    data = torch.ones((READ if not dry else 1 << 20) // 4, device=device)
    best = float("inf")
    for _ in range(5):
        if device.type == "cuda":
            torch.cuda.synchronize()
        begun = time.perf_counter()
        float(data.sum())
        best = min(best, time.perf_counter() - begun)
    return data.numel() * 4 / best


def figures(
    case: Case, rows: tuple[int, ...], dtype: torch.dtype, device: torch.device, read: float
) -> Iterator[Figure]:
    inputs = case.weight.shape[1]
    for count in [count for count in rows if case.least <= count <= case.most]:
        x = torch.randn(count, inputs, generator=torch.Generator().manual_seed(1)).to(dtype)
        found = case.calls[0](x.to(device)).double().cpu()
        # Some output features are enough to see an error and quick enough on a processor.
        outputs, some = found.shape[1], slice(0, min(len(case.weight), 512))
        expected = x.double() @ case.weight[some].double().t()
        error = float((found[:, some] - expected).abs().max() / expected.abs().max())
        seconds = sorted(timed(case.calls, x.to(device), REPLAYS))
        middle = statistics.median(seconds)
        low, high = seconds[len(seconds) // 10], seconds[-1 - len(seconds) // 10]
        rate = case.size / middle
        times = (1e6 * middle, 1e6 * low, 1e6 * high)
        yield Figure(case.what, outputs, inputs, count, *times, rate / 1e9, rate / read, error)


def all_cases(
    kinds: list[str], shapes: tuple[tuple[int, int], ...], dtype: torch.dtype, device: torch.device, dry: bool
) -> Iterator[Case]:
    for outputs, inputs in shapes:
        for kind in kinds:
            yield from ours(kind, outputs, inputs, dtype, device, dry)
        yield sixteen_bit(outputs, inputs, dtype, device, dry)
        if device.type == "cuda" and dtype == torch.bfloat16 and outputs <= MADE_BY_TORCH:
            yield torch_int4(outputs, inputs, device)


def main(arguments: list[str] | None = None) -> list[Figure]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), help="names of tests/gpu/kernel_kinds.py")
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS))
    parser.add_argument("--shapes", nargs="+", help="as 4096x14336: output and input features")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    parser.add_argument("--json", type=Path, help="write all figures into this file")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, in the interpreter, tiny")
    options = parser.parse_args(arguments)
    dry = options.dry_run
    device = torch.device("cpu" if dry else "cuda")
    if not dry and not torch.cuda.is_available():
        parser.error("PyTorch finds no CUDA GPU here")
    dtype = torch.float32 if dry else getattr(torch, options.dtype)
    shapes = ((24, 512),) if dry else SHAPES
    if options.shapes and not dry:
        shapes = tuple(tuple(map(int, text.split("x"))) for text in options.shapes)
    read = read_ceiling(device, dry)
    print(f"read-only pass: {read / 1e9:.0f} GB/s")
    found: list[Figure] = []
    for case in all_cases(options.kinds, shapes, dtype, device, dry):
        for figure in figures(case, tuple(options.rows), dtype, device, read):
            found.append(figure)
            print(f"{figure.what:26} {figure.outputs:6} x {figure.inputs:5} {figure.rows:3} rows "
                  f"{figure.microseconds:8.1f} us {figure.gigabytes_per_second:6.0f} GB/s "
                  f"{100 * figure.share_of_read:3.0f} % error {figure.error:.1e}", flush=True)  # fmt: skip
        del case
    if options.json:
        name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu, interpreted"
        facts: dict[str, Any] = {"device": name, "torch": torch.__version__, "read": read}
        options.json.write_text(json.dumps({**facts, "figures": [figure._asdict() for figure in found]}, indent=1))
    return found


if __name__ == "__main__":
    main()
