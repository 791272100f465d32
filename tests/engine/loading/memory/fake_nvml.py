"""NVML without a GPU: its own package, constants and errors, and functions that tell what a test says."""

from __future__ import annotations

from typing import Any

import pynvml
import pytest
import torch

from engine.loading.memory import nvml

MISSING = object()
"""Of a figure: this GPU does not have it."""
UUID = "0b1c7a8e-5f5d-4a7b-9a54-0c2f0fd2b1aa"


class FakeNvml:
    """One GPU. Figures are in NVML's units: milliwatts, millijoules, MHz and degrees."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {
            "nvmlDeviceGetPowerUsage": 250_000,
            "nvmlDeviceGetEnforcedPowerLimit": 450_000,
            "nvmlDeviceGetTotalEnergyConsumption": 9_000_000,
            "nvmlDeviceGetTemperature": 61,
            "core": 2520,
            "memory": 10501,
            "free": 20 << 30,
        }
        self.lost = False
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvml"):
            return lambda *arguments: self._call(name, arguments)
        return getattr(pynvml, name)

    def _call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        self.asked.append(name)
        if self.lost:
            raise pynvml.NVMLError_GpuIsLost()
        if name in ("nvmlInit",):
            return None
        if name == "nvmlDeviceGetHandleByUUID":
            if arguments[0] != f"GPU-{UUID}".encode():
                raise pynvml.NVMLError_NotFound()
            return "handle"
        assert arguments[0] == "handle"
        if name == "nvmlDeviceGetMemoryInfo":
            return type("Memory", (), {"free": self.figures["free"]})
        if name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
            return self.figures.get(name, [])
        if name == "nvmlDeviceGetClockInfo":
            name = {pynvml.NVML_CLOCK_SM: "core", pynvml.NVML_CLOCK_MEM: "memory"}[arguments[1]]
        if self.figures[name] is MISSING:
            raise pynvml.NVMLError_NotSupported()
        return self.figures[name]


def install(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Put it in the package's place, and a GPU of NVIDIA's where PyTorch looks."""
    fake = FakeNvml()
    monkeypatch.setattr(nvml, "_library", lambda: fake)
    properties = type("Properties", (), {"uuid": UUID, "total_memory": 24 << 30})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    return fake
