"""The memory in use now, by its owners."""

from __future__ import annotations

import functools
import logging
import os

import psutil
import torch

from engine.protocol import MemoryByOwner

_log = logging.getLogger(__name__)


def memory_by_owner(
    device: torch.device, weights: int, kv_used: int, kv_reserved: int, kv_touched: int = 0
) -> MemoryByOwner:
    """Split the memory in use between its owners, in bytes.

    ``weights`` counts the draft model's; ``kv_used`` are pages in use, ``kv_reserved`` the rest of the arenas;
    ``kv_touched`` is the most that was ever in use (a CPU gives an arena its memory page by page, at the first write).
    On a GPU "other programs" are those the driver names, or all that this process did not take.
    """
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        own = _own_on_gpu(device)
        held = own if own is not None else torch.cuda.memory_reserved(device)
        scope, other_programs = "device", max(0, total - free - held)
        other_kvasir = max(0, held - weights - kv_used - kv_reserved)
    else:
        memory = psutil.virtual_memory()
        resident = psutil.Process().memory_info().rss
        total, scope = memory.total, "process"
        other_programs = max(0, memory.total - memory.available - resident)
        other_kvasir = max(0, resident - weights - max(kv_used, min(kv_touched, kv_used + kv_reserved)))
    return MemoryByOwner(
        scope="device" if scope == "device" else "process",
        weights=weights,
        kv_used=kv_used,
        kv_reserved=kv_reserved,
        other_kvasir=other_kvasir,
        other_programs=other_programs,
        total=total,
    )


@functools.cache
def _nvml() -> object | None:
    """NVIDIA's management library, or None where it does not start."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:
        _log.info("memory of other programs is estimated, because NVML does not start: %s", error)
        return None
    return pynvml


def _own_on_gpu(device: torch.device) -> int | None:
    """Bytes that the driver counts as this process's; None where it does not say (containers, Windows)."""
    nvml = _nvml()
    if nvml is None:
        return None
    try:
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}".encode())  # type: ignore[attr-defined]
        processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)  # type: ignore[attr-defined]
    except Exception:
        return None
    own = [process.usedGpuMemory for process in processes if process.pid == os.getpid()]
    return own[0] if own and own[0] else None
