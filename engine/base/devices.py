"""Device types and their capabilities, in one table that the other rooms ask instead of testing for a device's name.

A model computes on a CPU, on a GPU that PyTorch calls "cuda" (NVIDIA's, and AMD's by ROCm), or on Apple's by Metal
("mps").
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Traits(NamedTuple):
    """A kind of device."""

    title: str
    """Name for people."""
    gpu: bool
    """Memory is taken as it is allocated and counted by the device; on a CPU a page is taken at the first write."""
    pinned: bool
    """Copies run beside the host's work, out of host memory that is pinned for them; elsewhere they are waited for."""
    float64: bool
    fixed_shapes: bool
    """Every new shape of a batch costs a compilation, so that there are to be few."""
    kernels: bool
    """Kvasir's Triton kernels may run here, and steps be captured in graphs."""
    block_rows: int
    """Rows that attention by torch's operators takes at a time: a small block keeps its scores in a CPU's cache."""


TRAITS = {
    "cpu": Traits("CPU", gpu=False, pinned=False, float64=True, fixed_shapes=False, kernels=False, block_rows=64),
    "cuda": Traits("CUDA", gpu=True, pinned=True, float64=True, fixed_shapes=False, kernels=True, block_rows=256),
    "mps": Traits("Metal", gpu=True, pinned=False, float64=False, fixed_shapes=True, kernels=False, block_rows=256),
}
"""Traits by PyTorch's name of the device type. Metal compiles a graph for every new shape."""


class DeviceMemory(NamedTuple):
    """Bytes of a GPU now. ``reserved`` is held by PyTorch, ``allocated`` of that in use by tensors."""

    total: int
    free: int
    reserved: int
    allocated: int


def traits(device: torch.device) -> Traits:
    """Traits of a device's type; a fake device ("meta") has the CPU's."""
    return TRAITS.get(device.type, TRAITS["cpu"])


def memory(device: torch.device, available: int = 0) -> DeviceMemory:
    """Memory of a GPU in bytes; not for a CPU. ``available`` is the machine's free memory, which Apple's GPUs share."""
    if device.type == "mps":
        total, reserved = torch.mps.recommended_max_memory(), torch.mps.driver_allocated_memory()
        free = max(0, min(total - reserved, available))
        return DeviceMemory(total, free, reserved, min(reserved, torch.mps.current_allocated_memory()))
    free, total = torch.cuda.mem_get_info(device)
    return DeviceMemory(total, free, torch.cuda.memory_reserved(device), torch.cuda.memory_allocated(device))


def gpu_kind() -> str:
    """The kind of GPU that PyTorch computes on here; "" where it finds none."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else ""


def make_current(device: torch.device) -> None:
    """Let this thread's kernels run on ``device``: a thread begins with the first GPU, wherever its tensors are."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def synchronize(device: torch.device) -> None:
    """Wait for everything that was launched."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def release_cached() -> None:
    """Give memory that PyTorch holds for later back to the GPU."""
    kind = gpu_kind()
    if kind == "cuda":
        torch.cuda.empty_cache()
    elif kind == "mps":
        torch.mps.empty_cache()


def for_sampling(logits: Tensor) -> Tensor:
    """Logits where they are drawn from: on the host if the device has no float64, in which that is done."""
    return logits if traits(logits.device).float64 else logits.cpu()
