"""How long drawing a token takes on this machine's GPU: greedy, default and other settings, by kernels and by torch.

    python tests/gpu/bench_sampling.py [--vocabulary 128256] [--rows 1 8 32] [--json FILE]

First the tokens are compared. Then each figure, the median of 50 in microseconds: a step of the host, from logits to
tokens read, by the kernels and by torch's operators; and the kernels alone, replayed as a CUDA graph of 20. Logits are
as of a text, a few tokens well above the rest. ``--dry-run`` checks the script on a CPU, in Triton's interpreter.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from engine.compute.sampling import device as kernels
from engine.compute.sampling import sampler
from engine.compute.sampling.draw import Draw
from engine.compute.sampling.params import SamplingParams
from tests.gpu.bench_attention import microseconds

SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "temperature": {"temperature": 0.6},
    "default": {"temperature": 0.6, "top_p": 0.9},
    "top-k, top-p": {"temperature": 0.6, "top_k": 20, "top_p": 0.95},
    "min-p": {"temperature": 0.6, "min_p": 0.05},
}
REPEATS = 50


class Figure(NamedTuple):
    """``left``: rows of the batch that the kernels left to torch; ``same``: whether all tokens were torch's."""

    what: str
    rows: int
    step: float
    torch_step: float
    kernels: float
    left: int
    same: bool


def host_microseconds(call: Callable[[], object], repeats: int) -> float:
    found = []
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        found.append(1e6 * (time.perf_counter() - begun))
    return statistics.median(found)


def figures(vocabulary: int, rows: Sequence[int], device: torch.device, dtype: torch.dtype) -> Iterator[Figure]:
    repeats = REPEATS if device.type == "cuda" else 1
    generator = torch.Generator().manual_seed(1)
    for count in rows:
        logits = torch.randn(count, vocabulary, generator=generator) * 2.0
        logits[:, :: max(1, vocabulary // 30)] += 8.0
        logits = logits.to(device, dtype)
        for what, settings in SETTINGS.items():
            draws = [Draw(SamplingParams(seed=row, **settings), row, range(100 + row)) for row in range(count)]
            # What is timed next was compiled for this.
            found, expected = kernels.draw(logits, draws) or [], sampler.by_torch(logits, draws)
            same = all(token in (None, right) for token, right in zip(found, expected, strict=True))
            buffers = kernels.RowBuffers(count, device)
            truncates = kernels.fill_rows(buffers.host, draws, vocabulary).truncates
            buffers.send()
            alone = partial(kernels.launch, logits, buffers.table, buffers.out, count, truncates)
            yield Figure(
                what,
                count,
                host_microseconds(partial(kernels.draw, logits, draws), repeats),
                host_microseconds(partial(sampler.by_torch, logits, draws), repeats),
                microseconds([alone], device),
                found.count(None),
                same,
            )


def main(arguments: list[str] | None = None) -> list[Figure]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=128256)
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--json", type=Path, help="write all figures into this file")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, in the interpreter, tiny")
    options = parser.parse_args(arguments)
    dry = options.dry_run
    device = torch.device("cpu" if dry else "cuda")
    if not dry and not torch.cuda.is_available():
        parser.error("PyTorch finds no CUDA GPU here")
    vocabulary, rows = (100, [2]) if dry else (options.vocabulary, options.rows)
    found = []
    for figure in figures(vocabulary, rows, device, torch.float32 if dry else torch.bfloat16):
        found.append(figure)
        print(f"{figure.what:14} rows {figure.rows:3} step {figure.step:8.1f} us, by torch {figure.torch_step:8.1f}, "
              f"kernels alone {figure.kernels:7.1f} us, left {figure.left}"
              f"{'' if figure.same else ' WRONG TOKENS'}", flush=True)  # fmt: skip
    if options.json:
        name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu, interpreted"
        facts = {"device": name, "torch": torch.__version__, "vocabulary": vocabulary}
        options.json.write_text(json.dumps({**facts, "figures": [figure._asdict() for figure in found]}, indent=1))
    return found


if __name__ == "__main__":
    main()
