"""Properties of a GPU by which kernels are chosen: its compute capability and its number of multiprocessors."""

from __future__ import annotations

import functools

import torch

TURING, TENSOR_CORES, HOPPER = (7, 5), (8, 0), (9, 0)
"""Compute capabilities: the oldest that any kernel serves, and the first for whose tensor cores Triton has code."""


@functools.cache
def capability(device: torch.device) -> tuple[int, int]:
    """The compute capability; an H100's where kernels are interpreted or only compiled. AMD's GPUs count as newer."""
    if device.type != "cuda":
        return HOPPER
    return torch.cuda.get_device_capability(device) if torch.version.hip is None else (99, 0)


@functools.cache
def processors(device: torch.device) -> int:
    """Multiprocessors of the device; 1 where kernels are interpreted, an H100's where they are only compiled."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    return 132 if device.type == "meta" else 1


def inlines(device: torch.device) -> bool:
    """Return True if kernels may hold PTX: not on AMD, and not in Triton's interpreter, which computes on the CPU.

    Device "meta" stands for an NVIDIA GPU that is not here, when kernels are only compiled.
    """
    return device.type in ("cuda", "meta") and torch.version.hip is None
