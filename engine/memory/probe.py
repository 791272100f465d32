"""What the engine can run on, and how much memory is free at this moment."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Literal, NamedTuple

import psutil
import torch

from engine.native.instructions import AVX2, PORTABLE, lack_of, wanted
from engine.protocol import Device

_CGROUP = Path("/sys/fs/cgroup")


class NoSuchDevice(Exception):  # noqa: N818 - a sentence for a person
    """The device asked for is not there; the message says so and what to do."""


class DtypeChoice(NamedTuple):
    """``notice`` is empty, or a sentence that says why it is not what one would expect."""

    dtype: torch.dtype
    notice: str = ""


def choose_device(kind: Literal["auto", "cpu", "cuda"] = "auto") -> torch.device:
    """CUDA where there is one, else the CPU. Raises :class:`NoSuchDevice` when "cuda" is asked for and not there."""
    if kind == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    if kind == "cuda":
        reason = "this PyTorch was built without CUDA" if torch.version.cuda is None else "PyTorch finds no CUDA GPU"
        raise NoSuchDevice(f"There is no GPU to run on: {reason}. Choose the device cpu, or install PyTorch with CUDA.")
    return torch.device("cpu")


def choose_dtype(
    device: torch.device, wanted: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
) -> DtypeChoice:
    """The dtype to compute in: what is wanted, else bfloat16 where the device multiplies in it."""
    if wanted != "auto":
        return DtypeChoice({"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[wanted])
    if device.type == "cuda":
        if torch.cuda.get_device_capability(device) >= (8, 0):
            return DtypeChoice(torch.bfloat16)
        return DtypeChoice(
            torch.float16, "Computing in float16, because this GPU (before compute capability 8.0) has no bfloat16."
        )
    if cpu_has_bfloat16():
        return DtypeChoice(torch.bfloat16)
    return DtypeChoice(
        torch.float32, f"Computing in float32, because {lack_of('bfloat16 instructions (AVX512-BF16 or AMX)')}."
    )


def cpu_has_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16 in hardware, and KVASIR_NATIVE leaves it that."""
    if wanted() in (AVX2, PORTABLE):
        return False
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in checks)


def probe(device: torch.device) -> Device:
    """The device with its memory now; its bandwidth is None until measured."""
    if device.type == "cuda":
        _, total = torch.cuda.mem_get_info(device)
        return Device(
            kind="cuda", name=torch.cuda.get_device_name(device), total_bytes=total, free_bytes=free_bytes(device)
        )
    memory = psutil.virtual_memory()
    limit = _container_limit()
    total = memory.total if limit is None else min(memory.total, limit)
    return Device(kind="cpu", name=cpu_name(), total_bytes=total, free_bytes=free_bytes(device))


def free_bytes(device: torch.device) -> int:
    """Bytes that a load may take now: free on the GPU, plus what torch holds unused; on a CPU, available memory."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    available = psutil.virtual_memory().available
    limit = _container_limit()
    if limit is None:
        return available
    return max(0, min(available, limit - _container_used()))


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
