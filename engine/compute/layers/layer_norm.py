"""Layer normalisation (Ba, Kiros and Hinton 2016)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional as F

from engine.compute.layers.linear.base import Linear
from engine.compute.layers.numerics import Numerics
from engine.compute.layers.residual import add_scaled

if TYPE_CHECKING:
    from engine.compute.layers.interface import WeightSource
    from engine.config.model import ModelConfig


def read_layer_norm(config: ModelConfig, source: WeightSource, name: str) -> LayerNorm:
    """The norm of the residual stream of the module ``name``."""
    weight, bias = (source.vector(f"{name}.{part}", config.hidden_size) for part in ("weight", "bias"))
    return LayerNorm(weight, bias, config.rms_norm_eps, source.numerics)


class LayerNorm:
    """``(x - mean(x)) / sqrt(var(x) + eps) * weight + bias`` over the last dimension, of ``size`` elements."""

    def __init__(self, weight: Tensor, bias: Tensor, eps: float, numerics: Numerics) -> None:
        self.weight, self.bias, self.eps, self.numerics = weight, bias, eps, numerics

    def forward(self, x: Tensor) -> Tensor:
        """``x [T, size]`` -> the same shape and dtype."""
        return self.numerics.by_row(self._normalise, x)

    def forward_added(self, x: Tensor, added: Tensor, scale: float = 1.0) -> Tensor:
        """Add ``scale * added`` to ``x [T, size]`` in place; the norm of the sum."""
        add_scaled(x, added, scale)
        return self.forward(x)

    def forward_within(self, x: Tensor, linear: Linear, gating: str = "") -> Tensor | None:
        """None: no product has this norm within."""
        return None

    def _normalise(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)

    def storage_size(self) -> int:
        return sum(tensor.nbytes for tensor in (self.weight, self.bias))
