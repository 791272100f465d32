"""What a profile says of decoding: kernels a step, how long they take, what lies between them."""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

WORK = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of a trace for what a GPU does."""
STEPS = 20
"""The last steps that are looked at: the first ones may still compile, or capture."""
SHOWN = 12


class Node(NamedTuple):
    """One kernel or copy on the GPU, in microseconds."""

    start: float
    duration: float
    name: str


def recorded(run: Callable[[], object], cuda: bool) -> list[Node]:
    """What the GPU did while ``run()`` ran, by start; nothing without one."""
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CUDA if cuda else activity.CPU]) as profiler:
        run()
        if cuda:
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory(prefix="kvasir-trace-") as folder:
        file = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        return nodes_of(json.loads(file.read_text())["traceEvents"])


def nodes_of(events: Sequence[dict[str, Any]]) -> list[Node]:
    """The GPU's part of a trace in Chrome's format."""
    found = [Node(event["ts"], event["dur"], event["name"]) for event in events if event.get("cat") in WORK]
    return sorted(found)


def steps_of(nodes: Sequence[Node], tokens: int) -> list[list[Node]]:
    """The last :data:`STEPS` steps of an answer: each ends with a kernel that ran about once for each of its tokens.

    (A step that was launched ahead may be one more.) Empty where no kernel ran so often.
    """
    counts = Counter(node.name for node in nodes)
    near = [name for name, count in counts.items() if abs(count - tokens) <= 1]
    if not near:
        return []
    # Of these the one that comes last in a step, as drawing a token does: nothing of the step follows.
    last = max(near, key=lambda name: max(node.start for node in nodes if node.name == name))
    ends = [place + 1 for place, node in enumerate(nodes) if node.name == last][-STEPS - 1 :]
    return [list(nodes[start:stop]) for start, stop in itertools.pairwise(ends)]


def summary(nodes: Sequence[Node], tokens: int, step_seconds: float | None) -> dict[str, Any]:
    """Figures of the last steps. ``step_seconds`` is a step's time without a profiler, which slows the host down:
    ``busy`` is the kernels' share of that."""
    empty: dict[str, Any] = {"steps": 0, "kernels": None, "kernel us": None, "busy": None, "gap p50 us": None,
                             "gap p95 us": None, "top": []}  # fmt: skip
    steps = steps_of(nodes, tokens)
    if not steps:
        return empty
    chain = [node for step in steps for node in step]
    gaps = sorted(max(0.0, b.start - a.start - a.duration) for a, b in itertools.pairwise(chain))
    times: Counter[str] = Counter()
    counts = Counter(node.name for node in chain)
    for node in chain:
        times[node.name] += node.duration
    work = statistics.median(sum(node.duration for node in step) for step in steps)
    return {
        "steps": len(steps),
        "kernels": statistics.median(len(step) for step in steps),
        "kernel us": work,
        "busy": work / step_seconds / 1e6 if step_seconds else None,
        "gap p50 us": gaps[len(gaps) // 2],
        "gap p95 us": gaps[len(gaps) * 95 // 100],
        "top": [
            {"kernel": name[:90], "a step": counts[name] / len(steps), "us a step": round(time / len(steps), 2)}
            for name, time in times.most_common(SHOWN)
        ],
    }
