"""Measured speed at which the device multiplies: the ceiling that reading a prompt is held against."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from engine.base import devices
from engine.loading.memory.bandwidth import in_a_thread

WIDTH, GPU_WIDTH = 2048, 8192
"""Width of the square matrices that are multiplied, on a CPU and on a GPU."""
_LEAST, _BUDGET_SECONDS = 3, 0.3


def measure_products(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations a second of a product of two square matrices in ``dtype``: the best of several."""
    width = GPU_WIDTH if devices.traits(device).gpu else WIDTH
    one, other = (torch.ones(width, width, dtype=dtype, device=device) for _ in range(2))
    return best_rate(device, 2.0 * width**3, lambda: one @ other)


def best_rate(device: torch.device, operations: float, work: Callable[[], object]) -> float:
    """``operations`` over the seconds of ``work``'s fastest run, of three or of those of 0.3 s."""

    @torch.inference_mode()
    def measure() -> float:
        work()  # compiles, and takes its buffers
        best, spent, runs = float("inf"), 0.0, 0
        while runs < _LEAST or spent < _BUDGET_SECONDS:
            devices.synchronize(device)
            start = time.perf_counter()
            work()
            devices.synchronize(device)
            elapsed = time.perf_counter() - start
            best, spent, runs = min(best, elapsed), spent + elapsed, runs + 1
        return operations / best

    return measure() if devices.traits(device).gpu else in_a_thread(measure)
