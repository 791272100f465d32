"""Addition with norm, and gating, as one kernel each on a GPU: launched where they have proved themselves."""

from __future__ import annotations

import functools
from typing import Any, Literal

import torch
from torch import Tensor

from engine.compute.batch import power_of_two
from engine.compute.native.proof import machine_declines, tried
from engine.compute.native.triton_launch import Variants

WIDEST = 16384
"""Channels of a row that one program normalises."""
GATED_AT_ONCE = 1024
TOLERANCE = 0.01
"""Share of the largest value by which the last of 16 bits may differ."""

Gating = Literal["silu", "gelu", "gelu_tanh", "clamped"]
_variants = Variants()


def warps(lanes: int) -> int:
    """Number of warps, up to 16, such that a thread has 8 channels, 16 bytes."""
    return min(16, max(1, lanes // 256))


def add_norm(x: Tensor, added: Tensor, scale: float, weight: Tensor, eps: float) -> Tensor:
    """Add ``scale * added`` to ``x [T, size]`` in place; the norm of the sum, a new tensor. ``weight [size]``.

    Both are contiguous and at addresses that 16 divides.
    """
    from engine.compute.layers.triton import fused_kernels

    out = torch.empty_like(x)
    rows, size = x.shape

    def keywords() -> dict[str, Any]:
        lanes = power_of_two(size)
        return {
            "SIZE": size,
            "LANES": lanes,
            "SCALED": scale != 1,
            "num_warps": warps(lanes),
            "enable_fp_fusion": False,
        }

    if rows:
        key = (x.dtype, weight.dtype, size, scale != 1)
        args = x, added, weight, out, float(scale), eps
        _variants.launch(fused_kernels.add_norm, key, (rows, 1, 1), args, keywords, early=True)
    return out


def gate(gate_up: Tensor, kind: Gating, limit: float = 0.0, alpha: float = 0.0) -> Tensor:
    """``gate_up [T, 2 I]`` contiguous, gates before ups -> a new tensor ``[T, I]``: see the kernel of this name."""
    from engine.compute.layers.triton import fused_kernels

    rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, size)

    def keywords() -> dict[str, Any]:
        return {"KIND": kind, "LANES": GATED_AT_ONCE, "num_warps": warps(GATED_AT_ONCE), "enable_fp_fusion": False}

    if rows:
        grid, args = (rows, -(-size // GATED_AT_ONCE), 1), (gate_up, out, size, float(limit), float(alpha))
        _variants.launch(fused_kernels.gate, (kind, gate_up.dtype, size), grid, args, keywords, early=True)
    return out


@functools.cache
def norm_disagrees(size: int, weight: torch.dtype, dtype: torch.dtype, device: torch.device) -> str | None:
    """Reason torch adds and normalises rows of ``size`` channels; None where the kernel is to be trusted."""
    if size > WIDEST or size % 8:
        return f"it has no rows of {size} channels"
    return machine_declines(dtype, device) or tried(
        ("norm", size, weight, dtype), device, lambda: compare_norm(size, weight, dtype, device)
    )


@functools.cache
def gate_disagrees(kind: Gating, dtype: torch.dtype, device: torch.device) -> str | None:
    """Reason torch gates; None where the kernel is to be trusted."""
    return machine_declines(dtype, device) or tried(
        ("gate", kind, dtype), device, lambda: compare_gate(kind, dtype, device)
    )


def compare_norm(size: int, weight: torch.dtype, dtype: torch.dtype, device: torch.device) -> str | None:
    """Reason a few sums and norms are wrong; None where they agree with the definition."""
    generator = torch.Generator().manual_seed(1)
    x, added = (torch.randn(5, size, generator=generator).to(dtype) for _ in range(2))
    factor = (1 + 0.1 * torch.randn(size, generator=generator)).to(weight)
    for scale in (1.0, 0.22):
        total = x + added if scale == 1 else x + added * scale
        expected = torch.nn.functional.rms_norm(total.double(), (size,), factor.double(), 1e-5)
        found = x.to(device, copy=True)
        normed = add_norm(found, added.to(device), scale, factor.to(device), 1e-5)
        if _far(found, total.double()) or _far(normed, expected):
            return "its sums and norms do not agree with the definition here"
    return None


def compare_gate(kind: Gating, dtype: torch.dtype, device: torch.device) -> str | None:
    """Reason a few gated rows, of two programs each, are wrong; None where they agree with the definition."""
    size = GATED_AT_ONCE + 16
    gate_up = (3 * torch.randn(3, 2 * size, generator=torch.Generator().manual_seed(1))).to(dtype)
    x, up = gate_up.double().chunk(2, -1)
    limit, alpha = 2.0, 1.702
    if kind == "clamped":
        x, up = x.clamp(max=limit), up.clamp(-limit, limit)
        expected = (up + 1) * x * torch.sigmoid(alpha * x)
    elif kind == "silu":
        expected = torch.nn.functional.silu(x) * up
    else:
        expected = torch.nn.functional.gelu(x, approximate="tanh" if kind == "gelu_tanh" else "none") * up
    wrong = _far(gate(gate_up.to(device), kind, limit, alpha), expected)
    return "its gates do not agree with the definition here" if wrong else None


def _far(found: Tensor, expected: Tensor) -> bool:
    """NaN counts as far."""
    return not bool((found.double().cpu() - expected).abs().max() <= TOLERANCE * expected.abs().max())
