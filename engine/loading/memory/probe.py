"""Devices that the engine can run on, and the memory that is free at this moment."""

from __future__ import annotations

import functools
import os
import platform
import re
import warnings
from pathlib import Path
from typing import Literal, NamedTuple

import psutil
import torch
from torch.nn import functional as F

from engine.base import devices
from engine.compute.native.instructions import lack_of, leaves_bfloat16
from engine.loading.memory import nvml
from engine.protocol import Device, DeviceKind, DeviceName

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
_CGROUP, _OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


class NoSuchDevice(Exception):  # noqa: N818 - a sentence for a person
    """The device asked for is not there; the message says so and what to do."""


class NoGpu(NamedTuple):
    """Reason that there is no GPU, as a phrase for people, and advice, as a sentence."""

    reason: str
    advice: str


class DtypeChoice(NamedTuple):
    """``notice`` is empty, or a sentence that says why it is not what one would expect."""

    dtype: torch.dtype
    notice: str = ""


def choose_device(name: DeviceName = "auto") -> torch.device:
    """The device of that name: a GPU where there is one for "auto", the one with the most free memory of several.

    "auto" takes Apple's only where it passes a trial (:func:`metal_fails`).
    Raises :class:`NoSuchDevice` when another one is asked for than there are.
    """
    found = devices.gpu_kind()
    kind, _, number = name.partition(":")
    if kind == "auto":
        kind = found or "cpu"
        if kind == "mps" and metal_fails() is not None:
            kind = "cpu"
    if kind == "cpu":
        return torch.device("cpu")
    if kind != found:
        reason, advice = why_no_gpu(kind)
        raise NoSuchDevice(f"There is no {'Apple GPU' if kind == 'mps' else 'GPU'} to run on: {reason}. {advice}")
    if kind == "mps":
        return torch.device("mps")
    count = torch.cuda.device_count()
    if not number:
        return torch.device("cuda", _roomiest(count) if count > 1 else torch.cuda.current_device())
    if int(number) >= count:
        known = "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        raise NoSuchDevice(f"There is no GPU {number}: PyTorch sees {count}. Choose {known}.")
    return torch.device("cuda", int(number))


@functools.cache
def metal_fails(device: torch.device = torch.device("mps")) -> str | None:
    """Reason that an Apple GPU does not compute what a model asks of it as the processor does; None where it does.

    Compares what a layer is made of once: PyTorch's operators for Metal are younger than those for CUDA.
    """
    dtype = choose_dtype(device).dtype
    generator = torch.Generator().manual_seed(3)
    table, weight = (torch.randn(64, 64, generator=generator).to(dtype) for _ in range(2))
    tokens, slots = torch.tensor([3, 60, 9, 9]), torch.tensor([5, 0, 7, 2])
    mask = torch.zeros(4, 8, dtype=dtype).masked_fill_(torch.ones(4, 8).tril(4) == 0, -torch.inf)

    def layer(place: torch.device) -> torch.Tensor:
        x = F.linear(table.to(place).index_select(0, tokens.to(place)), weight.to(place))
        arena = torch.zeros(8, 64, dtype=dtype, device=place).index_copy_(0, slots.to(place), x)
        q, kv = x.view(1, 4, 2, 32).transpose(1, 2), arena.view(1, 8, 2, 32).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, kv, kv, attn_mask=mask.to(place), scale=0.02)
        return F.silu(out.float()).cpu()

    try:
        with torch.inference_mode():
            found, expected = layer(device), layer(torch.device("cpu"))
    except Exception as error:  # PyTorch and Metal raise as they please
        return f"PyTorch fails on it ({(str(error).strip().splitlines() or [type(error).__name__])[0][:300]})"
    # Said this way round, a NaN is far too.
    if not bool((found - expected).abs().max() <= 0.02 * expected.abs().max()):
        return "it computes another result than the processor"
    return None


def why_no_gpu(kind: str = "cuda") -> NoGpu:
    """Reason that PyTorch computes on no GPU of that kind. To ask where it does makes no sense."""
    if kind == "mps":
        if devices.gpu_kind() == "mps":
            return NoGpu(f"the Apple GPU is left alone: {metal_fails()}", "Update macOS, or choose the device mps.")
        if torch.backends.mps.is_built():
            return NoGpu("macOS offers PyTorch none", "Update macOS, or choose the device cpu.")
        return NoGpu("this PyTorch was built without Metal", "Choose the device auto or cpu.")
    if torch.version.cuda is None and torch.version.hip is None:
        return NoGpu("this PyTorch was built without CUDA", "Choose the device cpu, or install PyTorch with CUDA.")
    said = _torch_says()
    if "driver" in said and "too old" in said:
        found = re.search(r"found version (\d+)", said)
        version = f" (it is for CUDA {_cuda_version(int(found[1]))})" if found else ""
        return NoGpu(
            f"the GPU's driver is too old for this PyTorch{version}", "Update the driver, or choose the device cpu."
        )
    if "no NVIDIA driver" in said:
        return NoGpu("no NVIDIA driver is installed", "Install the GPU's driver, or choose the device cpu.")
    name = "CUDA" if torch.version.hip is None else "AMD"
    why = "" if not said or "No CUDA GPUs" in said or "No HIP GPUs" in said else f" ({said})"
    return NoGpu(f"PyTorch finds no {name} GPU{why}", "Check the GPU's driver, or choose the device cpu.")


def _cuda_version(number: int) -> str:
    """CUDA's own way to write a version: 12040 is 12.4."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _torch_says() -> str:
    """The first line of what PyTorch says when its GPUs are started; "" where it says nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.cuda.init()
        except Exception as error:  # a RuntimeError of the driver's, an AssertionError of a build without GPUs
            lines = str(error).strip().splitlines()
            return lines[0][:300].rstrip(".") if lines else ""
    return ""


@functools.cache
def _roomiest(count: int) -> int:
    """The GPU with the most free memory, of those with equally much the first.

    Chosen once: later its own model makes it look full.
    """

    def free(index: int) -> int:
        device = torch.device("cuda", index)
        known = nvml.free_bytes(device)  # starts nothing on the GPUs that are not chosen
        return known if known is not None else devices.memory(device).free

    return max(range(count), key=lambda index: (free(index), -index))


def all_devices() -> list[torch.device]:
    """Devices that a model may compute on, the CPU first."""
    match devices.gpu_kind():
        case "cuda":
            gpus = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
        case "mps":
            gpus = [torch.device("mps")]
        case _:
            gpus = []
    return [torch.device("cpu"), *gpus]


def choose_dtype(device: torch.device, wanted: Dtype = "auto") -> DtypeChoice:
    """The dtype to compute in: what is wanted, else bfloat16 where the device multiplies in it."""
    if wanted != "auto":
        return DtypeChoice({"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[wanted])
    if has_bfloat16(device):
        return DtypeChoice(torch.bfloat16)
    if device.type == "mps":
        return DtypeChoice(torch.float16, "Computing in float16, because macOS has bfloat16 from version 14 on.")
    if device.type == "cuda":
        why = "has no bfloat16" if torch.version.hip is not None else "(before compute capability 8.0) has no bfloat16"
        return DtypeChoice(torch.float16, f"Computing in float16, because this GPU {why}.")
    return DtypeChoice(
        torch.float32, f"Computing in float32, because {lack_of('bfloat16 instructions (AVX512-BF16 or AMX)')}."
    )


def choose_kv_dtype(dtype: torch.dtype, wanted: Dtype = "auto") -> torch.dtype:
    """The dtype to keep keys and values in that are not packed, for a model that computes in ``dtype``: 16 bits, unless
    float32 was ``wanted``, so that nothing is rounded."""
    return torch.bfloat16 if dtype == torch.float32 and wanted == "auto" else dtype


def has_bfloat16(device: torch.device) -> bool:
    """Return True if the device multiplies bfloat16 in hardware."""
    if device.type == "mps":
        return torch.backends.mps.is_macos_or_newer(14, 0)
    if device.type == "cuda" and torch.version.hip is not None:
        return torch.cuda.is_bf16_supported(False)
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return cpu_has_bfloat16()


def cpu_has_bfloat16() -> bool:
    """Return True if the processor multiplies bfloat16 in hardware, and KVASIR_NATIVE leaves it that."""
    if not leaves_bfloat16():
        return False
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in checks)


def probe(device: torch.device) -> Device:
    """The device with its memory now; its bandwidth is None until measured."""
    if devices.traits(device).gpu:
        kind: DeviceKind = "mps" if device.type == "mps" else "cuda"
        name = torch.cuda.get_device_name(device) if kind == "cuda" else f"{cpu_name()}, GPU"
        total = devices.memory(device).total
        return Device(kind=kind, name=name, total_bytes=total, free_bytes=free_bytes(device), index=device.index or 0)
    memory = psutil.virtual_memory()
    limit = _container_limit()
    total = memory.total if limit is None else min(memory.total, limit)
    return Device(kind="cpu", name=cpu_name(), total_bytes=total, free_bytes=free_bytes(device))


def described(device: torch.device) -> Device:
    """Same as :func:`probe`, but without starting anything on a GPU that may never be used; 0 bytes free where NVML
    does not say."""
    if device.type != "cuda":
        return probe(device)
    total = torch.cuda.get_device_properties(device).total_memory
    free, name = nvml.free_bytes(device) or 0, torch.cuda.get_device_name(device)
    return Device(kind="cuda", name=name, total_bytes=total, free_bytes=free, index=device.index)


def free_bytes(device: torch.device) -> int:
    """Bytes that a load may take now: free on the GPU, plus what torch holds unused; on a CPU, available memory."""
    available = psutil.virtual_memory().available
    if devices.traits(device).gpu:
        now = devices.memory(device, available)
        return now.free + now.reserved - now.allocated
    limit = _container_limit()
    if limit is None:
        return available
    return max(0, min(available, limit - _container_used()))


def usable_cores() -> int:
    """Cores that this process may keep busy: those that it may run on, and no more than its control groups pay for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    own = _read(_OWN_CGROUP).rpartition("::")[2].strip("/")
    for group in (_CGROUP / own, *(_CGROUP / own).parents):
        quota, _, period = _read(group / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit():
            cores = min(cores, int(quota) // int(period))
        if group == _CGROUP:
            break
    return max(1, cores)


def limit_threads(spare: int = 0) -> None:
    """Let torch have no more threads than there are cores for them, less ``spare``; OMP_NUM_THREADS comes first.

    A thread that waits for its core holds up all the others at every operation.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, min(torch.get_num_threads(), usable_cores()) - spare))


def cpu_name() -> str:
    """The processor's name as its maker writes it, with its cores."""
    name = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = info.read_text(errors="replace").splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    cores = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    return f"{name or platform.machine() or 'CPU'} ({cores} core{'s' if cores != 1 else ''})"


def _container_limit() -> int | None:
    """The memory limit of the control group (version 2) that this process lives in, where it has one."""
    value = _read(_CGROUP / "memory.max")
    return int(value) if value.isdigit() else None


def _container_used() -> int:
    """Bytes in use in the control group that could not be dropped (its file cache could)."""
    used = _read(_CGROUP / "memory.current")
    cache = next(
        (line.split()[1] for line in _read(_CGROUP / "memory.stat").splitlines() if line.startswith("inactive_file ")),
        "0",
    )
    return max(0, int(used) - int(cache)) if used.isdigit() and cache.isdigit() else 0


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
