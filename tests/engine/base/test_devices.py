"""The choice of a device, what each can do, and why there is none; GPUs are pretended where PyTorch is asked."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest
import torch
import typer

from engine.base import devices
from engine.cache.offload.swap import SwapSpace
from engine.cache.stores import transfer
from engine.cache.stores.store import DenseKVStore
from engine.compute.runner import buffers
from engine.doors.cli import doctor
from engine.doors.cli.arguments import device_of
from engine.formats import load
from engine.library.paths import bundled_model
from engine.loading.memory import bandwidth, nvml, probe
from engine.loading.memory.owners import memory_by_owner
from engine.loading.memory.probe import NoSuchDevice, all_devices, choose_device, choose_dtype, free_bytes
from engine.protocol import LoadOptions
from engine.services.client import EngineClient

GB = 10**9
CPU, MPS = torch.device("cpu"), torch.device("mps")
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    probe._roomiest.cache_clear()
    yield
    probe._roomiest.cache_clear()


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Pretends GPUs of 24 GB with so many bytes free; returns those whose memory PyTorch was asked for."""

    def pretend(*free: int) -> list[int]:
        asked: list[int] = []

        def mem_get_info(device: torch.device) -> tuple[int, int]:
            asked.append(device.index)
            return free[device.index], 24 * GB

        monkeypatch.setattr(torch.version, "cuda", "12.8")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(free))
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "mem_get_info", mem_get_info)
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3 * GB)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 2 * GB)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
        properties = SimpleNamespace(total_memory=24 * GB, uuid="none")
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        monkeypatch.setattr(nvml, "_library", lambda: None)
        return asked

    return pretend


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """An Apple GPU that may take 20 GB, of which this process has 5, 4 of them in tensors."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda major, minor: True)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 20 * GB)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 5 * GB)
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: 4 * GB)
    monkeypatch.setattr(probe, "metal_fails", lambda: None)


def free_on_host(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=count, total=32 * GB))


# --- the choice ------------------------------------------------------------------------------------------------------


def test_one_gpu_is_taken_and_not_asked(gpus: Callable[..., list[int]]) -> None:
    asked = gpus(5 * GB)
    assert {str(choose_device(name)) for name in ("auto", "cuda", "cuda:0")} == {"cuda:0"}
    assert choose_device("cpu") == CPU
    assert asked == []


def test_of_several_the_one_with_the_most_free_memory_is_taken_for_good(gpus: Callable[..., list[int]]) -> None:
    gpus(3 * GB, 20 * GB, 9 * GB)
    assert str(choose_device("auto")) == "cuda:1"
    assert str(choose_device("cuda:2")) == "cuda:2"
    gpus(22 * GB, 1 * GB, 9 * GB)  # our model is on it by now
    assert str(choose_device("auto")) == str(choose_device("cuda")) == "cuda:1"


def test_the_first_of_equals_is_taken(gpus: Callable[..., list[int]]) -> None:
    gpus(9 * GB, 9 * GB)
    assert str(choose_device()) == "cuda:0"


def test_the_driver_s_library_is_asked_first(gpus: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch would start a context on every GPU, which takes hundreds of megabytes on each."""
    asked = gpus(0, 0)
    monkeypatch.setattr(nvml, "free_bytes", lambda device: (4 * GB, 8 * GB)[device.index])
    assert str(choose_device()) == "cuda:1"
    assert asked == []
    found = [probe.described(device) for device in all_devices()[1:]]
    assert [(each.kind, each.index, each.free_bytes) for each in found] == [("cuda", 0, 4 * GB), ("cuda", 1, 8 * GB)]
    assert asked == []


def test_a_gpu_that_is_not_there_is_a_sentence(gpus: Callable[..., list[int]]) -> None:
    gpus(GB, GB)
    with pytest.raises(NoSuchDevice, match=r"There is no GPU 2: PyTorch sees 2\. Choose cuda:0 to cuda:1\."):
        choose_device("cuda:2")
    with pytest.raises(NoSuchDevice, match=r"There is no Apple GPU to run on: .*without Metal"):
        choose_device("mps")


def test_a_mac_computes_on_its_gpu(mac: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("auto") == choose_device("mps") == MPS
    assert choose_device("cpu") == CPU
    assert [str(device) for device in all_devices()] == ["cpu", "mps"]
    assert choose_dtype(MPS) == (torch.bfloat16, "")
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda major, minor: False)
    assert choose_dtype(MPS).dtype == torch.float16
    assert "version 14" in choose_dtype(MPS).notice


def test_a_mac_whose_gpu_fails_its_trial_computes_on_the_processor(mac: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "metal_fails", lambda: "it computes another result than the processor")
    monkeypatch.setattr(doctor, "measure_bandwidth", lambda device: 1e9)
    assert choose_device("auto") == CPU
    assert choose_device("mps") == MPS, "whoever asks for it gets it"
    assert dict(doctor.machine_facts("auto"))["GPU"] == (
        "none in use: the Apple GPU is left alone: it computes another result than the processor. Update macOS, or "
        "choose the device mps."
    )


def test_the_trial_finds_operators_that_fail_or_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run on the processor, which agrees with itself."""
    fused = torch.nn.functional.scaled_dot_product_attention
    fails = probe.metal_fails.__wrapped__
    assert fails(CPU) is None
    calls: list[int] = []

    def wrong(*given: Any, **named: Any) -> torch.Tensor:
        calls.append(1)
        return fused(*given, **named) * (1.5 if len(calls) == 1 else 1.0)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", wrong)
    assert fails(CPU) == "it computes another result than the processor"
    monkeypatch.setattr(
        torch.nn.functional, "scaled_dot_product_attention", lambda *given, **named: given[0] * torch.nan
    )
    assert fails(CPU) == "it computes another result than the processor", "no number is not close to any"

    def refuse(*given: Any, **named: Any) -> torch.Tensor:
        raise NotImplementedError("not implemented for MPS\nmore")

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", refuse)
    assert fails(CPU) == "PyTorch fails on it (not implemented for MPS)"


# --- memory ----------------------------------------------------------------------------------------------------------


def test_memory_of_a_gpu(gpus: Callable[..., list[int]]) -> None:
    gpus(9 * GB)
    device = torch.device("cuda", 0)
    assert free_bytes(device) == 10 * GB, "what PyTorch holds unused is free to it"
    owners = memory_by_owner(device, GB, 0, GB)
    assert (owners.scope, owners.other_programs, owners.other_kvasir) == ("device", 12 * GB, GB)


def test_memory_of_a_mac(mac: None, monkeypatch: pytest.MonkeyPatch) -> None:
    free_on_host(monkeypatch, 30 * GB)
    assert free_bytes(MPS) == 16 * GB
    found = probe.probe(MPS)
    assert (found.kind, found.total_bytes, found.free_bytes) == ("mps", 20 * GB, 16 * GB)
    owners = memory_by_owner(MPS, 3 * GB, GB, 0)
    assert (owners.scope, owners.total, owners.other_programs, owners.other_kvasir) == ("device", 20 * GB, 0, GB)
    free_on_host(monkeypatch, 6 * GB)  # other programs have the rest of what GPU and processor share
    assert free_bytes(MPS) == 7 * GB
    assert memory_by_owner(MPS, 3 * GB, GB, 0).other_programs == 9 * GB


# --- what follows from the table -------------------------------------------------------------------------------------


@pytest.fixture
def unpinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor with the traits of an Apple GPU, and pinned memory forbidden."""
    monkeypatch.setitem(devices.TRAITS, "cpu", devices.TRAITS["mps"])

    def never(*given: Any, **named: Any) -> None:
        pytest.fail("memory was pinned")

    monkeypatch.setattr(torch.Tensor, "pin_memory", never)
    monkeypatch.setattr(torch.cuda, "Event", never)


def test_nothing_is_pinned_where_that_is_not_possible(unpinned: None, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[bool] = []
    real = torch.zeros

    def zeros(*size: Any, **named: Any) -> torch.Tensor:
        pinned.append(bool(named.pop("pin_memory", False)))
        return real(*size, **named)

    monkeypatch.setattr(torch, "zeros", zeros)
    assert transfer.on_device(CPU, [1, 2]).tolist() == [1, 2]
    made = buffers.Buffers(1, CPU)
    taken = made.take(buffers.Bucket(3, 1, 1, False))
    assert taken.bucket.T == 4, "shapes come in powers of two"
    taken.host.tokens[:] = 7
    made.commit(taken)
    assert taken.device.tokens.tolist() == [7, 7, 7, 7]
    arena = torch.arange(4 * 16 * 8, dtype=torch.float32).view(64, 8)
    moved = transfer.PageTransfer([arena], 4)
    moved._direct = False  # as on a GPU
    before = arena.clone()
    moved.import_([3, 1], moved.export([1, 2]))
    assert torch.equal(arena[48:], before[16:32])
    assert torch.equal(arena[16:32], before[32:48])
    assert not any(pinned)
    store = DenseKVStore([(1, 8)], 4, torch.float32)
    swap = SwapSpace(1 << 20)
    assert swap.cost([store], 3) == 3 * store.page_bytes, "PyTorch's powers of two are of pinned memory"


@pytest.mark.parametrize(("kind", "rows"), [("cpu", 64), ("mps", 256), ("cuda", 256), ("meta", 64)])
def test_attention_cuts_rows_as_the_device_wants(kind: str, rows: int) -> None:
    assert devices.traits(torch.device(kind)).block_rows == rows


def test_bandwidth_waits_for_the_device(mac: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the arithmetic nothing is known here: that the device is waited for, and how much it is given to read."""
    waited: list[torch.device] = []
    asked: list[torch.device] = []
    monkeypatch.setattr(devices, "synchronize", waited.append)
    monkeypatch.setattr(bandwidth, "free_bytes", lambda device: asked.append(device) or 16 << 20)
    real = torch.ones
    monkeypatch.setattr(torch, "ones", lambda count, dtype, device: real(count, dtype=dtype))
    bandwidth.known.clear()
    assert bandwidth.measure_bandwidth(MPS) > 0
    bandwidth.known.clear()
    assert {device.type for device in (*waited, *asked)} == {"mps"}


def test_each_device_is_waited_for_and_emptied_by_its_own(monkeypatch: pytest.MonkeyPatch, mac: None) -> None:
    done: list[str] = []
    for library, name in ((torch.cuda, "cuda"), (torch.mps, "mps")):
        monkeypatch.setattr(library, "synchronize", lambda *given, name=name: done.append(f"{name} waits"))
        monkeypatch.setattr(library, "empty_cache", lambda name=name: done.append(f"{name} emptied"))
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: done.append(f"{device} is current"))
    for device in (CPU, MPS, torch.device("cuda", 1)):
        devices.synchronize(device)
        devices.make_current(device)
    assert done == ["mps waits", "cuda waits", "cuda:1 is current"]
    done.clear()
    devices.release_cached()
    assert done == ["mps emptied"]


ALLOWED = {
    "engine/base/devices.py": "the table",
    "engine/loading/memory/probe.py": "the choice and the makers' own words",
    "engine/loading/memory/nvml.py": "NVIDIA's library",
    "engine/loading/memory/owners.py": "NVIDIA's library",
    "engine/compute/native/proof.py": "Triton's kernels are for what PyTorch calls cuda",
    "engine/loading/capabilities.py": "which of the two has code of its own",
    "engine/doors/cli/doctor.py": "why there is none",
    "engine/services/experiments/measures/throughput.py": "counters that only CUDA has",
    "engine/compute/native/gpu.py": "what PyTorch tells of what it calls cuda alone",
    "engine/compute/native/early.py": "an attribute of a launch that CUDA alone has",
}
"""Files that may name a kind of device, and why; everything else asks :func:`engine.base.devices.traits`."""


def test_the_table_is_asked_and_not_a_name() -> None:
    found = set()
    for path in ROOT.glob("engine/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                words = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
                if words & {"cuda", "mps"}:
                    found.add(path.relative_to(ROOT).as_posix())
    found = {path for path in found if "/triton/" not in path and "/packs/" not in path}
    assert found <= set(ALLOWED), found - set(ALLOWED)


# --- why there is none -----------------------------------------------------------------------------------------------

OLD = (
    "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by downloading "
    "and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx"
)
NONE = "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver from"


@pytest.mark.parametrize(
    ("says", "reason", "advice"),
    [
        (OLD, "the GPU's driver is too old for this PyTorch (it is for CUDA 11.4)", "Update the driver, or"),
        (NONE, "no NVIDIA driver is installed", "Install the GPU's driver, or"),
        ("No CUDA GPUs are available", "PyTorch finds no CUDA GPU", "Check the GPU's driver, or"),
        (
            "Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was attempted\nmore",
            "PyTorch finds no CUDA GPU (Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility "
            "was attempted)",
            "Check the GPU's driver, or",
        ),
        ("", "PyTorch finds no CUDA GPU", "Check the GPU's driver, or"),
    ],
)
def test_why_no_gpu_is_used(monkeypatch: pytest.MonkeyPatch, says: str, reason: str, advice: str) -> None:
    def init() -> None:
        raise RuntimeError(says)

    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", init)
    found = probe.why_no_gpu()
    assert found.reason == reason
    assert found.advice.startswith(advice)
    assert found.advice.endswith("choose the device cpu.")
    with pytest.raises(NoSuchDevice) as caught:
        choose_device("cuda")
    assert str(caught.value) == f"There is no GPU to run on: {reason}. {found.advice}"
    assert choose_device("auto") == CPU


def test_a_build_for_amd_is_not_called_one_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def init() -> None:
        raise RuntimeError("No HIP GPUs are available")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert probe.why_no_gpu().reason == "PyTorch finds no AMD GPU"
    monkeypatch.setattr(torch.version, "hip", None)
    assert probe.why_no_gpu().reason == "this PyTorch was built without CUDA"


def test_doctor_says_why_no_gpu_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    def init() -> None:
        raise RuntimeError(OLD)

    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.setattr(doctor, "measure_bandwidth", lambda device: 1e9)
    facts = dict(doctor.machine_facts("auto"))
    assert "cpu (in use)" in facts
    assert facts["GPU"] == (
        "none in use: the GPU's driver is too old for this PyTorch (it is for CUDA 11.4). Update the driver, or choose "
        "the device cpu."
    )


def test_doctor_survives_a_gpu_that_is_lost(gpus: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(device: torch.device) -> float:
        raise RuntimeError("CUDA error: unspecified launch failure\nCUDA kernel errors might be reported later.")

    gpus(GB, GB)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lost)
    monkeypatch.setattr(doctor, "measure_bandwidth", lost)
    facts = dict(doctor.machine_facts("cuda:0"))
    assert facts["cuda:0 (in use)"].startswith("does not answer (CUDA error: unspecified launch failure). Restart")
    assert facts["cuda:1"] == "GPU 1, 0 MB of 24.0 GB free"
    assert facts["read bandwidth"] == "cannot be measured: CUDA error: unspecified launch failure"


def test_doctor_names_the_device_of_a_mac(mac: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "measure_bandwidth", lambda device: 1e11)
    facts = dict(doctor.machine_facts("auto"))
    assert "free" in facts["mps (in use)"]
    assert "GPU" not in facts
    kernels = dict(doctor.compiler_facts(MPS))["Triton kernels"]
    assert kernels == "not used: they are for CUDA and ROCm, and this is Metal"


@pytest.mark.parametrize("device", ["cuda:1", "mps", "cpu", "auto", "cuda"])
def test_names_of_devices_are_understood(device: str) -> None:
    assert device_of(device) == device
    assert msgspec.convert({"device": device}, LoadOptions).device == device


@pytest.mark.parametrize("device", ["cuda:", "cuda:x", "gpu", "", "cuda:1 ", "cuda:9999"])
def test_other_names_are_refused(device: str) -> None:
    with pytest.raises(typer.BadParameter, match="none of auto, cpu, cuda and mps"):
        device_of(device)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"device": device}, LoadOptions)


def test_a_model_s_device_is_the_current_one_of_the_thread_that_loads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are launched on the current device, wherever their tensors are."""
    made: list[torch.device] = []
    monkeypatch.setattr(load, "make_current", made.append)
    monkeypatch.setattr(devices, "make_current", made.append)
    with EngineClient() as client:
        client.load(bundled_model().path, "", LoadOptions(device="cpu"))
    assert made == [CPU, CPU], "as its weights are read, and as its arenas are made"
