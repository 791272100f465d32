"""How fast the device reads memory, measured: the ceiling that decoding is held against."""

from __future__ import annotations

import functools
import time

import torch

from engine import devices
from engine.memory.probe import free_bytes

_CPU_BYTES = 192 << 20
"""Well beyond a last-level cache."""
_GPU_BYTES = 1 << 30
_GPU_PASSES = 16
_BUDGET_SECONDS = 0.15


@functools.cache
def read_bandwidth(kind: str, index: int, threads: int) -> float:
    """Bytes a second; see :func:`measure_bandwidth`, which fills in the key under which it is kept."""
    device = torch.device(kind) if kind == "cpu" else torch.device(kind, index)
    gpu = devices.traits(device).gpu
    count = (_GPU_BYTES if gpu else _CPU_BYTES) // 4
    if gpu:
        count = min(count, free_bytes(device) // 16)
    data = torch.ones(count, dtype=torch.float32, device=device)
    data.sum()
    # On a GPU passes are launched in a row, so that the time of a launch does not count as the memory's.
    passes = _GPU_PASSES if gpu else 1
    best, spent = float("inf"), 0.0
    devices.synchronize(device)
    while spent < _BUDGET_SECONDS:
        start = time.perf_counter()
        for _ in range(passes):
            data.sum()
        devices.synchronize(device)
        elapsed = time.perf_counter() - start
        best, spent = min(best, elapsed / passes), spent + elapsed
    return count * 4 / best


def measure_bandwidth(device: torch.device) -> float:
    """Best of several passes over a buffer larger than the caches, about 0.2 s the first time, then remembered.

    Bytes a second with torch's present number of threads.
    """
    return read_bandwidth(device.type, device.index or 0, torch.get_num_threads())
