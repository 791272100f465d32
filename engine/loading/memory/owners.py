"""The memory in use now, by its owners."""

from __future__ import annotations

import os

import psutil
import torch

from engine.base import devices
from engine.loading.memory import nvml
from engine.protocol import MemoryByOwner


def memory_by_owner(
    device: torch.device, weights: int, kv_used: int, kv_reserved: int, kv_touched: int = 0, pictures: int = 0
) -> MemoryByOwner:
    """Split the memory in use between its owners, in bytes.

    ``weights`` counts the draft model's; ``kv_used`` are pages in use, ``kv_reserved`` the rest of the arenas;
    ``pictures`` are those kept on the host;
    ``kv_touched`` is the most that was ever in use: a CPU gives an arena its memory page by page, at the first write,
    and what was never written takes none.
    On a GPU "other programs" are those the driver names, or all that this process did not take.
    """
    if devices.traits(device).gpu:
        total, free, reserved, _ = devices.memory(device, psutil.virtual_memory().available)
        own = nvml.own_bytes(device, os.getpid()) if device.type == "cuda" else None
        held = own if own is not None else reserved
        scope, other_programs = "device", max(0, total - free - held)
        other_kvasir = max(0, held - weights - kv_used - kv_reserved)
    else:
        memory = psutil.virtual_memory()
        resident = psutil.Process().memory_info().rss
        total, scope = memory.total, "process"
        other_programs = max(0, memory.total - memory.available - resident)
        kv_reserved = max(0, min(kv_touched - kv_used, kv_reserved))
        other_kvasir = max(0, resident - weights - kv_used - kv_reserved)
    return MemoryByOwner(
        scope="device" if scope == "device" else "process",
        weights=weights,
        kv_used=kv_used,
        kv_reserved=kv_reserved,
        other_kvasir=other_kvasir,
        other_programs=other_programs,
        total=total,
        pictures=pictures,
    )
