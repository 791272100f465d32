"""The part "ceilings": what the card itself does, which every other figure is held against."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch

from engine.loading.memory.bandwidth import measure_bandwidth
from tests.gpu.check.notes import Measures, Setting

COPIED = 4 << 30
NODES, REPLAYS = 200, 20
ELEMENTS = 1024


def measures(setting: Setting) -> Measures:
    """Bandwidths in bytes a second; a boundary between two kernels of a graph in microseconds."""
    device = torch.device(setting.device)
    yield "bandwidth", lambda: {"copy": copied(device), "read": measure_bandwidth(device)}
    yield "boundary", lambda: boundaries(device)


def copied(device: torch.device) -> float:
    """Bytes read and written a second by a copy within the device's memory, the best of several."""
    if device.type != "cuda":
        return measure_bandwidth(device)
    source = torch.ones(COPIED // 8, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return COPIED / min(seconds(lambda: target.copy_(source), 1) for _ in range(8))


def seconds(launch: Callable[[], Any], count: int) -> float:
    """The time of ``count`` launches in a row on the GPU, by its own clock."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(count):
        launch()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def graph_boundary(launch: Callable[[], Any]) -> float:
    """Microseconds a node of a graph of :data:`NODES` tiny kernels, each of which needs the one before it."""
    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(NODES):
            launch()
    graph.replay()
    return 1e6 * statistics.median(seconds(graph.replay, 1) for _ in range(REPLAYS)) / NODES


def boundaries(device: torch.device) -> dict[str, float | None]:
    """Of torch's kernels, of Triton's, and of Triton's where the next kernel may begin before the last one has ended
    (programmatic dependent launch, from compute capability 9.0 on); None where there is no such thing."""
    found: dict[str, float | None] = dict.fromkeys(("torch", "triton", "dependent launch", "saved"))
    if device.type != "cuda":
        return found
    from tests.gpu.check import tiny_kernel

    x = torch.zeros(ELEMENTS, device=device)
    found["torch"] = graph_boundary(lambda: x.add_(1))
    found["triton"] = plain = graph_boundary(lambda: tiny_kernel.launch(x, early=False))
    if torch.cuda.get_device_capability(device) >= (9, 0):
        found["dependent launch"] = early = graph_boundary(lambda: tiny_kernel.launch(x, early=True))
        found["saved"] = plain - early
    return found
