"""Root mean square normalisation (Zhang and Sennrich 2019)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from engine.layers.numerics import Numerics, by_row


class RMSNorm:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension, with float32 statistics.

    ``weight [size]``, or ``[heads, size]`` to normalise every head of ``x [T, heads, size]`` with its own.
    """

    def __init__(self, weight: Tensor, eps: float, numerics: Numerics) -> None:
        self.weight, self.eps, self.numerics = weight, eps, numerics
        self._shape = (weight.shape[-1],)
        # The fused operator takes one weight for all rows; another shape is multiplied afterwards.
        self._fused = weight if weight.dim() == 1 else None

    def forward(self, x: Tensor) -> Tensor:
        """``x [T, ...]`` -> the same shape and dtype."""
        return by_row(self._normalise, x) if self.numerics.batch_invariant else self._normalise(x)

    def _normalise(self, x: Tensor) -> Tensor:
        y = F.rms_norm(x, self._shape, self._fused, self.eps)
        return y if self._fused is not None else y * self.weight

    def storage_size(self) -> int:
        return self.weight.numel() * self.weight.element_size()
