"""The merge of two attentions as one kernel on a GPU, where it has proved itself."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from engine.compute.attention import interface
from engine.compute.attention.triton import trial
from engine.compute.batch import power_of_two
from engine.compute.native.proof import machine_declines, tried
from engine.compute.native.triton_launch import Variants

_variants = Variants()


def merge(o1: Tensor, lse1: Tensor, o2: Tensor, lse2: Tensor) -> tuple[Tensor, Tensor]:
    """Same as `engine.compute.attention.interface.merge`; o [T, H, d] in one dtype, lse [T, H] float32, all
    contiguous."""
    from engine.compute.attention.triton import merge_kernels

    out, lse = torch.empty_like(o1), torch.empty_like(lse1)
    rows, heads, width = o1.shape

    def keywords() -> dict[str, Any]:
        return {"WIDTH": width, "LANES": power_of_two(width), "num_warps": 1}

    if rows:
        args = (o1, lse1, o2, lse2, out, lse)
        _variants.launch(merge_kernels.merge, (o1.dtype, width), (rows * heads, 1, 1), args, keywords)
    return out, lse


def serves(o1: Tensor, lse1: Tensor, o2: Tensor, lse2: Tensor) -> bool:
    """Return True if the kernel merges these."""
    tensors = (o1, lse1, o2, lse2)
    if not o1.is_cuda or lse1.dtype != torch.float32 or o1.dtype != o2.dtype:
        return False
    if not all(each.is_contiguous() and each.data_ptr() % 16 == 0 for each in tensors):
        return False
    return disagrees(o1.shape[2], o1.dtype, o1.device) is None


@functools.cache
def disagrees(width: int, dtype: torch.dtype, device: torch.device) -> str | None:
    """Reason torch merges heads of ``width`` channels; None where the kernel is to be trusted."""
    return machine_declines(dtype, device) or tried(
        ("merge", width, dtype), device, lambda: compare(width, dtype, device)
    )


def compare(width: int, dtype: torch.dtype, device: torch.device) -> str | None:
    """Reason a few merges by the kernel, of empty parts too, are wrong; None where they agree with the definition."""
    generator = torch.Generator().manual_seed(1)
    o1, o2 = (torch.randn(4, 3, width, generator=generator).to(dtype) for _ in range(2))
    lse1, lse2 = (3 * torch.randn(4, 3, generator=generator) for _ in range(2))
    lse1[0], lse2[1], lse1[2], lse2[2] = -torch.inf, -torch.inf, -torch.inf, -torch.inf
    want, want_lse = interface.merge(o1.float(), lse1, o2.float(), lse2)
    found, found_lse = merge(*(each.to(device) for each in (o1, lse1, o2, lse2)))
    wrong = trial.far(found, want, trial.TOLERANCE) or trial.far(found_lse, want_lse, trial.TOLERANCE)
    return "its merges do not agree with the definition here" if wrong else None
