"""The gated feed-forward block (SwiGLU, GeGLU; Shazeer 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor

from engine.compute.layers.activation import Gated
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.residual import ResidualStream

if TYPE_CHECKING:
    from engine.compute.layers.interface import Norm, WeightSource
    from engine.config.model import ModelConfig


class GatedMLP:
    """``down(act(gate(x)) * up(x))`` with gate and up fused; the activation is the configuration's."""

    def __init__(
        self, config: ModelConfig, source: WeightSource, prefix: str, intermediate_size: int | None = None
    ) -> None:
        """``prefix`` names the block in the checkpoint, such as ``model.layers.0.mlp.``.

        ``intermediate_size`` is the configuration's unless another is given.
        """
        own = config.mlp
        inner = own.intermediate_size if intermediate_size is None else intermediate_size
        self.gated = Gated(own.activation, source.numerics)
        names: tuple[str, ...] = ("gate_proj", "up_proj")
        sizes = [inner, inner]
        if own.fused:
            names, sizes = ("gate_up_proj",), [2 * inner]
        self.gate_up: Linear = source.linear(prefix, names, sizes, config.hidden_size, own.bias)
        self.down: Linear = source.linear(prefix, ("down_proj",), [config.hidden_size], inner, own.bias)

    def forward(self, x: Tensor) -> Tensor:
        """``x [T, hidden_size]``, already normalised -> what the block adds to the residual stream."""
        return self.down(self.gated.of(self.gate_up, x))

    def add_to(self, stream: ResidualStream, norm: Norm, scale: float) -> None:
        """Add ``scale`` times what the block makes of the norm of the stream."""
        stream.add_product(self.down, stream.multiplied(norm, self.gate_up, self.gated), scale)

    def storage_size(self) -> int:
        """Bytes held besides the linear layers."""
        return 0

    def linears(self) -> Iterator[tuple[str, Linear]]:
        yield "gate_up", self.gate_up
        yield "down", self.down
