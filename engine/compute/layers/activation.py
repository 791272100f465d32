"""The non-linear functions of the feed-forward blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.compute.layers.linear.base import Linear, Surroundings
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.triton import fused
from engine.compute.native.library import find
from engine.config.feed_forward import ActivationKind

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
}


class Activation:
    """One of :data:`FUNCTIONS`, row by row in the batch-invariant mode."""

    def __init__(self, kind: ActivationKind, numerics: Numerics) -> None:
        self.function, self.numerics = FUNCTIONS[kind], numerics

    def __call__(self, x: Tensor) -> Tensor:
        """``x [T, ...]`` -> a new tensor of the same shape and dtype."""
        return self.numerics.by_row(self.function, x)


class Gated:
    """Gating between the layers of a gated block: ``act(gate) * up``."""

    def __init__(self, kind: ActivationKind, numerics: Numerics) -> None:
        self.kind, self.activation = kind, Activation(kind, numerics)

    def of(self, gate_up: Linear, x: Tensor) -> Tensor:
        """``x [T, K]`` -> ``[T, I]``, gated products of a layer of gates and ups, by its own kernel where it has one
        that gates."""
        found = gate_up.forward_within(x, Surroundings(gating=self.kind))
        return self(gate_up(x)) if found is None else found

    def __call__(self, gate_up: Tensor) -> Tensor:
        """``gate_up [T, 2 I]``, gate before up -> a new tensor ``[T, I]``."""
        if self.kind != "relu" and self.kind != "relu2" and _by_kernel(gate_up, self.kind, self.activation.numerics):
            return fused.gate(gate_up, self.kind)
        if (gated := _native(gate_up, self.kind)) is not None:
            return gated
        gate, up = gate_up.chunk(2, -1)
        return self.activation(gate).mul_(up)


class ClampedSwiGLU:
    """gpt-oss' gating: ``(up + 1) * gate * sigmoid(alpha * gate)``; gate is at most ``limit``, up within ±``limit``."""

    def __init__(self, limit: float, alpha: float, numerics: Numerics) -> None:
        self.limit, self.alpha, self.numerics = limit, alpha, numerics

    def __call__(self, gate_up: Tensor) -> Tensor:
        """``gate_up [T, 2 I]``, gate before up -> a new tensor ``[T, I]``."""
        if _by_kernel(gate_up, "clamped", self.numerics):
            return fused.gate(gate_up, "clamped", self.limit, self.alpha)
        if (gated := _native(gate_up, "clamped", self.limit, self.alpha)) is not None:
            return gated
        gate, up = gate_up.chunk(2, -1)
        gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
        share = self.numerics.by_row(torch.sigmoid, gate * self.alpha)
        return gate.mul_(share).mul_(up.add_(1))


def _native(gate_up: Tensor, kind: str, limit: float = 0.0, alpha: float = 0.0) -> Tensor | None:
    """By native code, where that does it. (Its exponential may differ from torch's in the last bit.)"""
    library = find().library if gate_up.device.type == "cpu" else None
    return None if library is None else library.gate(gate_up, kind, limit, alpha)


def _by_kernel(gate_up: Tensor, kind: fused.Gating, numerics: Numerics) -> bool:
    """Return True if one kernel gates. (Its exponential may differ from torch's in the last bit.)"""
    if not gate_up.is_cuda or numerics.batch_invariant or not gate_up.is_contiguous() or gate_up.data_ptr() % 16:
        return False
    return fused.gate_disagrees(kind, gate_up.dtype, gate_up.device) is None
