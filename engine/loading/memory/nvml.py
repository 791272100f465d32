"""NVIDIA's management library (NVML): a GPU's power, clocks, temperature, energy and free memory.

It is optional: without the package nvidia-ml-py, the driver's library or a GPU of NVIDIA's nothing is known, and each
figure that a GPU does not have is missing by itself. No call starts a context on a GPU. Some calls take milliseconds,
so that none is made by the engine's own thread.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
import torch

from engine.protocol import GpuReading

_log = logging.getLogger(__name__)


@functools.cache
def _library() -> Any:
    """The library, started, or None where it does not start, or PyTorch computes on other makers' GPUs."""
    if torch.version.cuda is None:
        return None
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # the package is missing, or its errors, which are no class of Python's own
        _log.info("NVML is not used: %s", error)
        return None
    return pynvml


def _handle(nvml: Any, device: torch.device) -> Any:
    """NVML's own name of a GPU: it counts all GPUs of the machine, and PyTorch those that it was left."""
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}".encode())


def free_bytes(device: torch.device) -> int | None:
    """Free memory of a GPU; None where NVML does not say."""
    nvml = _library()
    if nvml is None:
        return None
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(_handle(nvml, device)).free)
    except Exception as error:
        _log.info("NVML does not know %s: %s", device, error)
        return None


def own_bytes(device: torch.device, process: int) -> int | None:
    """Bytes that the driver counts as the process's; None where it does not say (containers, Windows)."""
    nvml = _library()
    if nvml is None:
        return None
    try:
        processes = nvml.nvmlDeviceGetComputeRunningProcesses(_handle(nvml, device))
    except Exception:
        return None
    own = [each.usedGpuMemory for each in processes if each.pid == process]
    return int(own[0]) if own and own[0] else None


def programs(device: torch.device, process: int) -> list[tuple[str, int]]:
    """Names of the other programs that hold a GPU's memory, and bytes, the most first; none where NVML says none."""
    nvml = _library() if device.type == "cuda" else None
    if nvml is None:
        return []
    try:
        handle = _handle(nvml, device)
        running = [
            *nvml.nvmlDeviceGetComputeRunningProcesses(handle),
            *nvml.nvmlDeviceGetGraphicsRunningProcesses(handle),
        ]
    except Exception:
        return []
    held = {each.pid: int(each.usedGpuMemory) for each in running if each.usedGpuMemory and each.pid != process}
    found = []
    for pid, size in held.items():
        with contextlib.suppress(psutil.Error):
            found.append((psutil.Process(pid).name(), size))
    return sorted(found, key=lambda each: -each[1])


def throttling(device: torch.device) -> str:
    """Reason that a GPU runs below its clock, as a phrase; "" where it does not, or nothing is known."""
    nvml = _library() if device.type == "cuda" else None
    if nvml is None:
        return ""
    try:
        said = int(nvml.nvmlDeviceGetCurrentClocksEventReasons(_handle(nvml, device)))
    except Exception:  # a driver or a GPU that does not say
        return ""
    heat = nvml.nvmlClocksEventReasonSwThermalSlowdown | nvml.nvmlClocksEventReasonHwThermalSlowdown
    power = nvml.nvmlClocksEventReasonSwPowerCap | nvml.nvmlClocksEventReasonHwPowerBrakeSlowdown
    return "its temperature" if said & heat else "its power limit" if said & power else ""


class Meter:
    """Reads one GPU. Any thread may ask; a GPU that is lost is not asked again."""

    def __init__(self, device: torch.device, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._nvml = _library() if device.type == "cuda" else None
        self._joules = 0.0
        self._before: tuple[float, float] | None = None
        """Time and power of the last reading."""
        self._first: float | None = None
        """Joules on the GPU's own energy counter from which energy is counted."""
        if self._nvml is not None:
            try:
                self._gpu = _handle(self._nvml, device)
            except Exception as error:
                _log.info("NVML does not know %s: %s", device, error)
                self._nvml = None

    def read(self) -> GpuReading | None:
        """Present reading of the GPU; None where it says nothing.

        Energy counts from the first reading: by the GPU's own counter, or as power over the time between readings.
        """
        with self._lock:
            nvml = self._nvml
            if nvml is None:
                return None
            try:
                watts = self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(self._gpu) / 1e3)
                reading = GpuReading(
                    watts=watts,
                    limit_watts=self._ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(self._gpu) / 1e3),
                    celsius=self._ask(
                        lambda: float(nvml.nvmlDeviceGetTemperature(self._gpu, nvml.NVML_TEMPERATURE_GPU))
                    ),
                    core_mhz=self._ask(lambda: float(nvml.nvmlDeviceGetClockInfo(self._gpu, nvml.NVML_CLOCK_SM))),
                    memory_mhz=self._ask(lambda: float(nvml.nvmlDeviceGetClockInfo(self._gpu, nvml.NVML_CLOCK_MEM))),
                    joules=self._energy(watts),
                )
            except nvml.NVMLError as error:  # only a GPU that is gone gets here
                _log.warning("NVML has lost the GPU: %s", error)
                self._nvml = None
                return None
            return None if reading == GpuReading() else reading

    def _ask(self, figure: Callable[[], float]) -> float | None:
        """One figure, or None where the GPU has no such. Raises NVMLError where the GPU is gone."""
        assert self._nvml is not None
        try:
            return figure()
        except self._nvml.NVMLError as error:
            if error.value in (self._nvml.NVML_ERROR_GPU_IS_LOST, self._nvml.NVML_ERROR_UNINITIALIZED):
                raise
            return None

    def _energy(self, watts: float | None) -> float | None:
        nvml = self._nvml
        assert nvml is not None
        counter = self._ask(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(self._gpu) / 1e3)
        if counter is not None:
            if self._first is None:
                self._first = counter - self._joules
            return counter - self._first
        if self._first is not None:
            return None  # the counter goes on meanwhile, which estimates would not
        now, before = self._clock(), self._before
        self._before = None if watts is None else (now, watts)
        if watts is None:
            return None
        if before is not None:
            self._joules += (now - before[0]) * (watts + before[1]) / 2
        return self._joules
