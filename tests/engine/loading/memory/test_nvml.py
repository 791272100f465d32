"""Power, clocks, temperature and energy of a GPU: what it does not have is missing alone, and a lost one no error."""

from __future__ import annotations

import builtins
import os

import psutil
import pynvml
import pytest
import torch

from engine.loading.memory import nvml
from engine.loading.memory.nvml import Meter
from engine.protocol import GpuReading
from tests.engine.loading.memory.fake_nvml import MISSING, FakeNvml, install

CUDA = torch.device("cuda", 0)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    return install(monkeypatch)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_reading_has_the_units_of_its_names(gpu: FakeNvml) -> None:
    reading = Meter(CUDA).read()
    assert reading == GpuReading(
        watts=250.0, limit_watts=450.0, celsius=61.0, core_mhz=2520.0, memory_mhz=10501.0, joules=0.0
    )


def test_programs_that_hold_memory_are_named(gpu: FakeNvml) -> None:
    def holding(pid: int, size: int | None) -> object:
        return type("Process", (), {"pid": pid, "usedGpuMemory": size})

    mine, parent, gone = os.getpid(), os.getppid(), 1 << 30
    gpu.figures["nvmlDeviceGetComputeRunningProcesses"] = [holding(mine, 5 << 30), holding(gone, 1 << 30)]
    gpu.figures["nvmlDeviceGetGraphicsRunningProcesses"] = [holding(parent, 2 << 30), holding(mine, None)]
    assert nvml.programs(CUDA, mine) == [(psutil.Process(parent).name(), 2 << 30)]
    assert nvml.programs(CUDA, parent) == [(psutil.Process(mine).name(), 5 << 30)]
    gpu.lost = True
    assert nvml.programs(CUDA, mine) == []
    assert nvml.programs(torch.device("cpu"), mine) == []


def test_energy_is_the_counter_s_from_the_first_reading_on(gpu: FakeNvml) -> None:
    meter = Meter(CUDA)
    found = []
    for counter in (9_000_000, 9_125_000, 9_500_000):
        gpu.figures["nvmlDeviceGetTotalEnergyConsumption"] = counter
        reading = meter.read()
        assert reading is not None
        found.append(reading.joules)
    assert found == [0.0, 125.0, 500.0]


def test_a_counter_that_is_not_answered_once_is_not_replaced_by_an_estimate(gpu: FakeNvml) -> None:
    meter = Meter(CUDA, Clock())
    found = []
    for counter in (9_000_000, 9_125_000, MISSING, 9_500_000):
        gpu.figures["nvmlDeviceGetTotalEnergyConsumption"] = counter
        reading = meter.read()
        assert reading is not None
        found.append(reading.joules)
    assert found == [0.0, 125.0, None, 500.0]


def test_without_a_counter_energy_is_power_over_time(gpu: FakeNvml) -> None:
    gpu.figures["nvmlDeviceGetTotalEnergyConsumption"] = MISSING
    clock = Clock()
    meter = Meter(CUDA, clock)
    found = []
    for now, milliwatts in ((100.0, 100_000), (102.0, 300_000), (102.5, 300_000), (110.0, MISSING), (111.0, 100_000)):
        clock.now, gpu.figures["nvmlDeviceGetPowerUsage"] = now, milliwatts
        reading = meter.read()
        assert reading is not None
        found.append(reading.joules)
    # Trapezes of 2 s from 100 to 300 W and of 0.5 s at 300 W; nothing is made up over a gap.
    assert found == [0.0, 400.0, 550.0, None, 550.0]


def test_a_figure_that_the_gpu_does_not_have_is_missing_alone(gpu: FakeNvml) -> None:
    for name in ("nvmlDeviceGetEnforcedPowerLimit", "memory"):
        gpu.figures[name] = MISSING
    reading = Meter(CUDA).read()
    assert reading is not None
    assert (reading.limit_watts, reading.memory_mhz, reading.watts, reading.core_mhz) == (None, None, 250.0, 2520.0)
    for name in gpu.figures:
        gpu.figures[name] = MISSING
    assert Meter(CUDA).read() is None, "a GPU that says nothing has no reading"


def test_a_lost_gpu_is_not_asked_again(gpu: FakeNvml, caplog: pytest.LogCaptureFixture) -> None:
    meter = Meter(CUDA)
    assert meter.read() is not None
    gpu.lost = True
    assert meter.read() is None
    asked = len(gpu.asked)
    gpu.lost = False
    assert meter.read() is None
    assert len(gpu.asked) == asked
    assert [record.message for record in caplog.records] == [
        f"NVML has lost the GPU: {pynvml.NVMLError_GpuIsLost()}"
    ], "said once"
    gpu.lost = True
    assert Meter(CUDA).read() is None, "nor one that is lost before it was ever found"


def test_other_devices_are_not_asked(gpu: FakeNvml) -> None:
    for device in (torch.device("cpu"), torch.device("mps")):
        assert Meter(device).read() is None
    assert gpu.asked == []


def test_without_the_package_or_its_driver_everything_works(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: object, **options: object) -> object:
        if name == "pynvml":
            raise ModuleNotFoundError("No module named 'pynvml'")
        return real(name, *arguments, **options)  # type: ignore[arg-type]

    def no_driver() -> None:
        raise pynvml.NVMLError_LibraryNotFound()

    monkeypatch.setattr(torch.version, "cuda", "12.8")
    with monkeypatch.context() as patched:
        patched.setattr(builtins, "__import__", without)
        nvml._library.cache_clear()
        assert Meter(CUDA).read() is None
    monkeypatch.setattr(pynvml, "nvmlInit", no_driver)
    nvml._library.cache_clear()
    assert Meter(CUDA).read() is None
    assert nvml.free_bytes(CUDA) is None
    assert nvml.own_bytes(CUDA, 1) is None
    nvml._library.cache_clear()


def test_gpus_of_other_makers_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: pytest.fail("asked"))
    nvml._library.cache_clear()
    assert nvml._library() is None
    nvml._library.cache_clear()
