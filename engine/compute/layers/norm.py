"""Root mean square normalisation (Zhang and Sennrich 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional as F

from engine.compute.layers.linear.base import Linear, Surroundings
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.residual import add_scaled
from engine.compute.layers.triton import fused
from engine.compute.native.library import DTYPES, find

if TYPE_CHECKING:
    from engine.compute.layers.interface import WeightSource
    from engine.config.model import ModelConfig


def norm_weight(config: ModelConfig, source: WeightSource, name: str, size: int) -> Tensor:
    """The tensor ``name`` as a norm multiplies by it; ``1 + tensor`` in float32 where the family wants that."""
    stored = source.vector(name, size)
    return stored.float() + 1 if config.unit_offset_norms else stored


def read_norm(config: ModelConfig, source: WeightSource, name: str) -> RMSNorm:
    """The norm of the residual stream whose weight is the tensor ``name``."""
    return RMSNorm(norm_weight(config, source, name, config.hidden_size), config.rms_norm_eps, source.numerics)


class RMSNorm:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension, with float32 statistics.

    ``weight [size]``, or ``[heads, size]`` to normalise every head of ``x [T, heads, size]`` with its own.
    A float32 weight with ``x`` in less is multiplied before the result is rounded.
    """

    def __init__(self, weight: Tensor, eps: float, numerics: Numerics) -> None:
        self.weight, self.eps, self.numerics = weight, eps, numerics
        self._shape = (weight.shape[-1],)
        # The fused operator takes one weight for all rows; another shape is multiplied afterwards.
        self._fused = weight if weight.dim() == 1 else None
        fits = self._shape[0] % 16 == 0 and weight.dtype in DTYPES
        self._library = find().library if weight.device.type == "cpu" and fits else None

    def forward(self, x: Tensor) -> Tensor:
        """``x [T, ...]`` -> the same shape and dtype."""
        if self._library is not None and x.dtype in DTYPES:
            return self._library.norm(x.contiguous(), self.weight, self.eps)
        return self.numerics.by_row(self._normalise, x)

    def forward_added(self, x: Tensor, added: Tensor, scale: float = 1.0) -> Tensor:
        """Add ``scale * added`` to ``x [T, size]`` in place; the norm of the sum."""
        if x.is_cuda and self._serves(x, added):
            return fused.add_norm(x, added, scale, self.weight, self.eps)
        if self._library is not None and x.dtype in DTYPES and x.is_contiguous() and added.is_contiguous():
            return self._library.norm(x, self.weight, self.eps, added, scale)
        add_scaled(x, added, scale)
        return self.forward(x)

    def forward_within(self, x: Tensor, linear: Linear, gating: str = "") -> Tensor | None:
        """``linear`` of the norm of ``x [T, size]``, and the gating after it, by one kernel; None where it has none."""
        if not x.is_cuda:
            return None
        return linear.forward_within(x, Surroundings(self.weight, self.eps, gating))

    def _serves(self, x: Tensor, added: Tensor) -> bool:
        """Return True if one kernel adds and normalises. (It sums squares in another order than torch.)"""
        if self.numerics.batch_invariant or not (x.is_contiguous() and added.is_contiguous()):
            return False
        if (x.data_ptr() | added.data_ptr() | self.weight.data_ptr()) % 16:
            return False
        return fused.norm_disagrees(self._shape[0], self.weight.dtype, x.dtype, x.device) is None

    def _normalise(self, x: Tensor) -> Tensor:
        y = F.rms_norm(x.to(self.weight.dtype), self._shape, self._fused, self.eps)
        return (y if self._fused is not None else y * self.weight).to(x.dtype)

    def storage_size(self) -> int:
        return self.weight.nbytes
