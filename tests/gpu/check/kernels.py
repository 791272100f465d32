"""The parts "products", "attention" and "sampling": Kvasir's kernels alone, by the scripts beside this package."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator
from types import MethodType
from typing import Any, NamedTuple, cast

import torch

from tests.gpu.check.notes import Measures, Setting

MATRICES = {
    "qkv": (6144, 4096), "o": (4096, 4096), "gate_up": (28672, 4096), "down": (4096, 14336), "head": (128256, 4096),
}  # fmt: skip
"""Output and input features of a Llama 8B."""
KINDS = ("int4 g128", "int4 g64", "NF4")
ROWS = (1, 2, 4, 8, 16, 64, 128, 256, 512)
SWEPT = "int4 g128"
PROMPT, PROMPT_CONTEXT = 512, 4096
HEADS, WIDTH = 32, 128


def products(setting: Setting) -> Measures:
    """``figures[matrix][kind][rows]``, and under "8 rows to 1" what eight rows take of one row's time."""
    from tests.gpu import bench_kernels

    device, dtype = torch.device(setting.device), torch.float32 if setting.dry else torch.bfloat16
    rows = (1, 8) if setting.dry else ROWS
    read = bench_kernels.read_ceiling(device, setting.dry)
    yield "read", lambda: read

    def matrix(shape: tuple[int, int]) -> Iterator[dict[str, Any]]:
        found: dict[str, Any] = {}
        for case in bench_kernels.all_cases(list(KINDS), (shape,), dtype, device, setting.dry):
            measured = list(bench_kernels.figures(case, rows, dtype, device, read))
            if not measured:
                continue
            by_rows: dict[str, Any] = {str(figure.rows): plain(figure) for figure in measured}
            times = {figure.rows: figure.microseconds for figure in measured}
            if 1 in times and 8 in times:
                by_rows["8 rows to 1"] = times[8] / times[1]
            found[case.what] = by_rows
            show(measured)
            yield found
            if case.what == SWEPT:
                for other in bench_kernels.swept(case, tiles(setting)):
                    measured = list(bench_kernels.figures(other, (1,), dtype, device, read))
                    show(measured)
                    found[other.what] = {str(figure.rows): plain(figure) for figure in measured}
                    yield found

    for name, shape in MATRICES.items():
        yield name, lambda shape=shape: matrix((16, 512) if setting.dry else shape)
    yield "surrounded", lambda: surrounded(setting)


def surrounded(setting: Setting) -> Iterator[dict[str, Any]]:
    """``figures[matrix]``: microseconds of one row's product with what surrounds it in a layer, by one kernel ("at
    once") and by one for each part ("apart"): whether a norm within a product pays, an H200 has to say."""
    from engine.compute.layers.linear.base import Surroundings
    from engine.compute.layers.linear.triton import surrounded as kernels
    from tests.gpu import bench_kernels

    device, dtype = torch.device(setting.device), torch.float32 if setting.dry else torch.bfloat16
    found: dict[str, Any] = {}
    for name, (outputs, inputs) in MATRICES.items():
        if name == "head":
            continue
        sizes = (32, 512) if setting.dry else (outputs, inputs)
        norm, stream = (torch.ones(size, dtype=dtype, device=device) for size in (sizes[1], sizes[0]))
        around = Surroundings(stream=stream[None])
        if name in ("qkv", "gate_up"):
            around = Surroundings(norm, 1e-5, "silu" if name == "gate_up" else "")
        case = next(iter(bench_kernels.ours(SWEPT, *sizes, dtype, device, setting.dry)))
        layers = [cast(MethodType, call).__self__ for call in case.calls]
        x = torch.randn(1, sizes[1], generator=torch.Generator().manual_seed(1)).to(device, dtype)
        reason = kernels.declines(layers[0], x, around)
        found[name] = {"declined": reason}
        for what, function in (("at once", kernels.multiply), ("apart", kernels.apart)):
            calls = [lambda x, layer=layer, by=function, around=around: by(layer, x, around) for layer in layers]
            found[name][what] = 1e6 * statistics.median(bench_kernels.timed(calls, x, bench_kernels.REPLAYS))
        print(f"  {name}: {found[name]}", flush=True)
        yield found


def tiles(setting: Setting) -> list[Any]:
    """For one row: output features to a tile, and how many tiles are on their way."""
    from engine.compute.layers.linear.triton.runtime import Tile

    return [Tile(8, outputs, 4, stages) for outputs in (16, 32, 64) for stages in (2, 3)][: 1 if setting.dry else None]


def attention(setting: Setting) -> Measures:
    """``figures[kind]["batch B rows R context C"]``; "write": rotate, pack and store a step's keys and values."""
    from tests.gpu import bench_attention

    dry = setting.dry
    device, dtype = torch.device(setting.device), torch.float32 if dry else torch.bfloat16
    bench = bench_attention.Bench(dtype, device, dry)
    batches, rows, contexts = ((8,), (1,), (70,)) if dry else ((1, 8), (1, 4, 8), (512, 4096, 32768))
    # In a dry run a figure stands where it does on a GPU, whatever its size.
    named = {70: 4096}

    def place(figure: bench_attention.Figure) -> str:
        return f"batch {figure.batch} rows {figure.rows} context {named.get(figure.context, figure.context)}"

    def collected(figures: Iterable[bench_attention.Figure]) -> Iterator[dict[str, Any]]:
        found: dict[str, Any] = {}
        for figure in figures:
            found.setdefault(figure.what, {})[place(figure)] = plain(figure)
            show([figure])
            yield found

    def prompt() -> dict[str, Any]:
        count, context = (4, 70) if dry else (PROMPT, PROMPT_CONTEXT)
        figure = next(bench.kind("dense", 1, (count,), context))
        # Each row reads the keys before it: two products of them.
        operations = 4 * HEADS * WIDTH * count * (context - count / 2)
        return {**plain(figure), "tflops": None if dry else operations / figure.microseconds / 1e6}

    for kind in ("dense", "int8", "int4", "latent")[: 1 if dry else None]:
        cases = (bench.kind(kind, batch, rows, context) for batch in batches for context in contexts)
        yield kind, lambda cases=cases: collected(itertools.chain.from_iterable(cases))
    yield "prompt", prompt
    writes = (bench.writes(kind, count) for kind in ("dense", "int8", "int4")[: 1 if dry else None] for count in rows)
    yield "write", lambda: collected(itertools.chain.from_iterable(writes))


def sampling(setting: Setting) -> Measures:
    """``figures["draw"][setting][rows]``: microseconds of a step by the kernels, by torch, and of the kernels alone."""
    from tests.gpu import bench_sampling

    device, dtype = torch.device(setting.device), torch.float32 if setting.dry else torch.bfloat16
    vocabulary, rows = (40, (1,)) if setting.dry else (128256, (1, 8, 32))

    def draw() -> Iterator[dict[str, Any]]:
        found: dict[str, Any] = {"wrong": 0}
        for figure in bench_sampling.figures(vocabulary, rows, device, dtype):
            found.setdefault(figure.what, {})[str(figure.rows)] = plain(figure)
            found["wrong"] += not figure.same
            show([figure])
            yield found

    yield "draw", draw


def plain(figure: Any) -> dict[str, Any]:
    """A named tuple for JSON, in four digits."""
    return {
        name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in figure._asdict().items()
    }


def show(figures: Iterable[NamedTuple]) -> None:
    """A line each."""
    for figure in figures:
        print("  " + ", ".join(f"{name} {value}" for name, value in plain(figure).items()), flush=True)
