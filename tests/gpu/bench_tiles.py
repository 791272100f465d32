"""Which way of cutting up a product of 4-bit weights is the fastest on this GPU, for each number of rows.

    python tests/gpu/bench_tiles.py [--kind "int4 g128"] [--rows 1 2 4 8 16 32 64] [--workers 12] [--json FILE]

All cuts are compiled first, by several processes, into Triton's cache. Figures as in bench_kernels.py, for each of the
four matrices of a layer of a Llama 8B and summed over them, beside the cut that is served; runtime.py's table is made
from them. What is the quickest for one matrix may be slow for another, so that each has its own line.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, cast

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from tests.gpu.bench_kernels import SHAPES, Case, figures, ours, read_ceiling

if TYPE_CHECKING:
    from engine.compute.layers.linear.triton.runtime import Cut

LAYER = SHAPES[:-1]
ROWS = (1, 2, 4, 8, 16, 32, 64)
REPEATED = 5


def cuts(rows: int, inputs: int = 4096) -> Iterator[Cut]:
    """All that may be worth a trial for so many rows."""
    from engine.compute.layers.linear.triton.runtime import FmaTile, Tile, WideTile

    tall = max(8, 1 << (rows - 1).bit_length())
    for outputs in (16, 32, 64):
        for slices in (2, 4, 8):
            for stages in (1, 2, 3):
                if slices * outputs * max(tall, 16) <= 8192:
                    yield Tile(min(tall, 64), outputs, slices, stages)
    if rows > 16:
        yield Tile(16, 32, 2)
        yield Tile(16, 32, 4)
    if rows <= 2:
        yield from (FmaTile(rows, outputs, halfwords, warps) for outputs in (2, 4, 8) for halfwords in (512, 1024)
                    for warps in (2, 4))  # fmt: skip
    if rows >= 8:
        for height in sorted({min(max(16, tall), 32), min(max(16, tall), 64)}):
            for outputs, warps in ((32, 2), (64, 4), (128, 8)):
                if outputs >= height:
                    splits = (1, 2, 4) if rows > 16 else (1,)
                    yield from (
                        WideTile(height, outputs, warps, *each) for each in itertools.product((2, 3, 4), splits)
                    )


def cut_up(case: Case, cut: Cut) -> Case:
    layers = [cast(MethodType, call).__self__ for call in case.calls]
    calls = [lambda x, layer=layer: layer.product(x, x.dtype, cut) for layer in layers]
    return case._replace(what=f"{type(cut).__name__}{tuple(cut)}", calls=calls)


def served(kind: str, shape: tuple[int, int], device: torch.device) -> Case:
    return next(ours(kind, *shape, torch.bfloat16, device, False))


def compile_some(kind: str, rows: Sequence[int], part: int, parts: int, device: torch.device) -> None:
    """Every ``parts``-th cut, of a small matrix."""
    case = served(kind, (1024, 4096), device)
    every = sorted({cut for count in rows for cut in cuts(count)}, key=lambda cut: (type(cut).__name__, cut))
    for cut in every[part::parts]:
        try:
            cut_up(case, cut).calls[0](torch.randn(cut.rows, 4096, device=device, dtype=torch.bfloat16))
        except Exception as error:  # whatever does not fit is not measured either
            print(f"{cut}: {str(error).splitlines()[0]}", flush=True)


def measured(kind: str, rows: Sequence[int], device: torch.device) -> Iterator[dict[str, Any]]:
    """A row a number of rows, shape and cut."""
    read = read_ceiling(device, False)
    for shape in LAYER:
        case = served(kind, shape, device)
        for count in rows:
            for each in (case, *(cut_up(case, cut) for cut in cuts(count))):
                try:
                    figure = next(figures(each, (count,), torch.bfloat16, device, read))
                except Exception as error:
                    torch.cuda.synchronize()
                    print(f"{each.what}: {str(error).splitlines()[0]}", flush=True)
                    continue
                yield figure._asdict()


def best(found: Sequence[dict[str, Any]], kind: str) -> str:
    """For each number of rows, the cuts with the least time of all matrices of a layer, and those of each matrix."""
    lines = []
    for count in sorted({row["rows"] for row in found}):
        by_matrix: dict[tuple[int, int], dict[str, float]] = {}
        for row in found:
            if row["rows"] == count:
                by_matrix.setdefault((row["outputs"], row["inputs"]), {})[row["what"]] = row["microseconds"]
        everywhere = set.intersection(*(set(times) for times in by_matrix.values()))
        whole = {what: sum(times[what] for times in by_matrix.values()) for what in everywhere}
        ranked = sorted(whole, key=whole.__getitem__)
        own = sum(min(times.values()) for times in by_matrix.values())
        lines.append(f"{count} rows: served {whole.get(kind, 0):.1f} us a layer, each matrix by its quickest {own:.1f}")
        lines += [
            f"    {whole[what]:7.1f}  {what}  {[round(times[what], 1) for times in by_matrix.values()]}"
            for what in ranked[:REPEATED]
        ]
        for (outputs, inputs), times in by_matrix.items():
            quickest = sorted(times, key=times.__getitem__)[:REPEATED]
            told = ", ".join(f"{times[what]:.1f} {what}" for what in quickest)
            lines.append(f"    {outputs} x {inputs}: served {times.get(kind, 0):.1f}; {told}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", default="int4 g128")
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS))
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--compile", type=int, nargs=2, metavar=("PART", "PARTS"), help="only compile a part")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = torch.device("cuda")
    if options.compile:
        compile_some(options.kind, options.rows, *options.compile, device)
        return
    told = [sys.executable, __file__, "--kind", options.kind, "--rows", *map(str, options.rows), "--compile"]
    running = [subprocess.Popen([*told, str(part), str(options.workers)]) for part in range(options.workers)]
    for process in running:
        process.wait()
    found = []
    for row in measured(options.kind, options.rows, device):
        found.append(row)
        if options.json:
            options.json.write_text(json.dumps(found))
    print(best(found, options.kind))


if __name__ == "__main__":
    main()
