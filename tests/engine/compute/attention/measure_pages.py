"""What choosing pages (QUEST) saves of a decode step's attention: `measure_pages.py`.

One layer's share of a step, writing its token's keys and values and attending, with every page read and with some
chosen. Layers take turns, so that none finds its keys in a processor's cache; keys and queries are random, so that the
heads of a group choose different pages, which is the worst case.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch

from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.stores.packed import Placement
from engine.cache.techniques.quest.store import DENSE_LAYERS, QuestStore
from engine.compute.attention.interface import AttnSpec
from engine.compute.attention.quest import QuestAttention
from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import SequenceRows
from engine.compute.runner.runner import Runner
from engine.services.experiments.workloads.shapes import SHAPES, Shape

LAYERS = 4
"""The number of layers that take turns."""


class PageFigures(NamedTuple):
    """One layer of a decode step; `budget` in tokens that each head reads, None: all of them.

    ``bytes_read``: keys, values and bounds, as often as heads read them.
    """

    budget: int | None
    milliseconds: float
    bytes_read: int


def measure_pages(shape: Shape, keys: int, budgets: Sequence[int], rounds: int = 15) -> list[PageFigures]:
    """Every page read, then each budget, in bfloat16 on the CPU: processor time, medians of interleaved rounds."""
    pages, heads, kv_heads, width = pages_for(keys), shape.heads, shape.kv_heads, shape.head_dim
    quest, plain = (
        QuestStore([(kv_heads, width)] * LAYERS, pages + 1, torch.bfloat16, bounded=[bounded] * LAYERS)
        for bounded in (True, False)
    )
    some, slots = torch.randn(keys, kv_heads, width).bfloat16(), torch.arange(PAGE_SIZE, PAGE_SIZE + keys)
    for layer in range(LAYERS):
        for store in (quest, plain):
            store.write(layer, some.roll(layer, 0), some.roll(-layer - 1, 0), Placement(slots[None], [PAGE_SIZE]))
    one_group: Any = SimpleNamespace(num_groups=1)
    runner = Runner(one_group, quest, AttentionDispatcher())
    batch = runner.batch([SequenceRows([0], keys - 1, range(1, pages + 1))])
    q, (k, v) = torch.randn(1, heads, width).bfloat16(), torch.randn(2, 1, kv_heads, width).bfloat16()
    spec = AttnSpec(width**-0.5)
    readers = {budget: (QuestAttention(), np.array([budget // PAGE_SIZE])) for budget in budgets}
    seconds: dict[int | None, list[float]] = {budget: [] for budget in (None, *budgets)}
    for _ in range(rounds + 1):
        for budget, taken in seconds.items():
            for layer in range(LAYERS):
                began = time.process_time()
                if budget is None:
                    plain.write(layer, k, v, batch.placement)
                    runner.attention.attend(q, plain.view(layer), spec, batch)
                else:
                    quest.write(layer, k, v, batch.placement)
                    reader, chosen = readers[budget]
                    reader.attend(q, quest.view(layer), spec, batch, chosen)
                taken.append(time.process_time() - began)
    sizes: dict[int | None, int] = {None: keys * kv_heads * 2 * width * 2}
    sizes |= {budget: reader.bytes_read // ((rounds + 1) * LAYERS) for budget, (reader, _) in readers.items()}
    return [
        PageFigures(budget, 1000 * statistics.median(taken[LAYERS:]), sizes[budget])  # the first round is a warm-up
        for budget, taken in seconds.items()
    ]


def of_step(dense: float, own: float, shape: Shape) -> float:
    """The figure of all layers from those of one layer; the first layers read every page."""
    return DENSE_LAYERS * dense + (shape.layers - DENSE_LAYERS) * own


def main() -> None:
    """Print the table of docs/measurements.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[8192, 32768])
    parser.add_argument("--budgets", type=int, nargs="+", default=[256, 512, 1024, 2048, 4096])
    parser.add_argument("--shapes", nargs="+", choices=sorted(SHAPES), default=["1b", "8b"])
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| shape | keys | budget | layer, MB | layer, ms | step, MB | step, ms |\n" + "| --- " * 7 + "|")
    for shape in (SHAPES[name] for name in given.shapes):
        for keys in given.keys:
            full, *_ = rows = measure_pages(shape, keys, given.budgets)
            for row in rows:
                size = of_step(full.bytes_read, row.bytes_read, shape) / 1e6
                step = of_step(full.milliseconds, row.milliseconds, shape)
                budget = "all" if row.budget is None else f"{row.budget:,}"
                layer = f"{row.bytes_read / 1e6:.1f} | {row.milliseconds:.2f}"
                print(f"| {shape.name} | {keys:,} | {budget} | {layer} | {size:,.0f} | {step:.1f} |", flush=True)


if __name__ == "__main__":
    main()
