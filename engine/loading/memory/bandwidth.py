"""Measured speed at which the device reads memory: the ceiling that decoding is held against."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from engine.base import devices
from engine.base.host_memory import Slabs
from engine.loading.memory.probe import free_bytes

_CPU_BYTES = 192 << 20
"""Bytes read of a processor's memory, or twice its last-level caches where that is more and there is room."""
_CORES = Path("/sys/devices/system/cpu")
_BLOCK = 1 << 22
_GPU_BYTES = 1 << 30
_GPU_PASSES = 16
_BUDGET_SECONDS = 0.15


known: dict[tuple[str, int, int], float] = {}
"""Measured bytes a second, by kind and number of the device and by torch's number of threads."""


class MeasurementStopped(Exception):  # noqa: N818 - an outcome, no failure
    """Nobody waits for the measurement any more."""


def _never() -> bool:
    return False


def fresh_bandwidth(device: torch.device, size: int = 0, stopped: Callable[[], bool] = _never) -> float:
    """Same as :func:`measure_bandwidth`, but measured again each time; ``size``: bytes of the buffer, which caches may
    hold, 0: chosen for the device."""
    if device.type != "cpu":
        return _measured(device, size, stopped)
    return in_a_thread(lambda: _measured(device, size, stopped))


def in_a_thread(measure: Callable[[], float]) -> float:
    """Run a measurement of a processor in a thread of its own, and return its result."""
    # In a thread that then ends, as do the threads that OpenMP keeps for each that has used it. Where two threads have
    # some, libgomp lets all of them sleep between regions: each of torch's operators in the engine waits 40 us for one.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(measure).result()


def _measured(device: torch.device, size: int, stopped: Callable[[], bool]) -> float:
    return read_speed(device, filled_buffer(device, size, stopped), _BUDGET_SECONDS, stopped)


def filled_buffer(device: torch.device, size: int = 0, stopped: Callable[[], bool] = _never) -> Tensor:
    """Float32 ones to be read, ``size`` bytes of them; 0: more than the device's caches hold.

    Raises :class:`MeasurementStopped` soon after ``stopped`` says so.
    """
    if devices.traits(device).gpu:
        size = size or min(_GPU_BYTES, free_bytes(device) // 16)
        return torch.ones(max(1, size // 4), dtype=torch.float32, device=device)
    # In pages like those of a model's weights.
    beyond = 2 * last_level_bytes()
    size = size or (beyond if _CPU_BYTES < beyond < free_bytes(device) // 4 else _CPU_BYTES)
    data = Slabs().empty((max(1, size // 4),), torch.float32)
    for block in data.split(_BLOCK):  # the system clears each page, which takes seconds on a busy machine
        block.fill_(1)
        if stopped():
            raise MeasurementStopped
    return data


def read_speed(device: torch.device, data: Tensor, budget: float, stopped: Callable[[], bool] = _never) -> float:
    """Bytes a second at which a device reads its ``data``, the best of the passes that begin within ``budget`` seconds.

    On a processor in this very thread, which :func:`in_a_thread` tells about. Raises :class:`MeasurementStopped` soon
    after ``stopped`` says so.
    """
    data.sum()
    # On a GPU passes are launched in a row, so that the time of a launch does not count as the memory's.
    passes = _GPU_PASSES if devices.traits(device).gpu else 1
    best, spent = float("inf"), 0.0
    devices.synchronize(device)
    while spent < budget:
        if stopped():
            raise MeasurementStopped
        start = time.perf_counter()
        for _ in range(passes):
            data.sum()
        devices.synchronize(device)
        elapsed = time.perf_counter() - start
        best, spent = min(best, elapsed / passes), spent + elapsed
    return data.nbytes / best


def last_level_bytes(cores: Path = _CORES) -> int:
    """Bytes of the level-3 caches that the process's cores share, each counted once; 0 where the system does not
    say."""
    sizes: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError, AttributeError):
        for core in os.sched_getaffinity(0):
            cache = cores / f"cpu{core}/cache/index3"
            sizes[(cache / "shared_cpu_list").read_text()] = int((cache / "size").read_text().strip().removesuffix("K"))
    return sum(sizes.values()) << 10


def measure_bandwidth(device: torch.device, stopped: Callable[[], bool] = _never) -> float:
    """Best of several passes over a buffer larger than the caches, some tenths of a second at first, then remembered.

    Bytes a second with torch's present number of threads. Raises :class:`MeasurementStopped` soon
    after ``stopped`` says so.
    """
    key = device.type, device.index or 0, torch.get_num_threads()
    if key not in known:
        known[key] = fresh_bandwidth(device, stopped=stopped)
    return known[key]
