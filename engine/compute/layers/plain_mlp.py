"""The feed-forward block of two layers with an activation between them (Vaswani et al. 2017)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor

from engine.compute.layers.activation import Activation
from engine.compute.layers.linear.base import Linear

if TYPE_CHECKING:
    from engine.compute.layers.interface import WeightSource
    from engine.config.model import ModelConfig


class PlainMLP:
    """``down(act(up(x)))``."""

    def __init__(
        self,
        config: ModelConfig,
        source: WeightSource,
        prefix: str,
        up: str = "up_proj",
        down: str = "down_proj",
        intermediate_size: int | None = None,
    ) -> None:
        """``prefix + up`` and ``prefix + down`` name the layers in the checkpoint, such as ``fc1`` and ``fc2``.

        ``intermediate_size`` is the configuration's unless another is given.
        """
        own = config.mlp
        inner = own.intermediate_size if intermediate_size is None else intermediate_size
        self.activation = Activation(own.activation, source.numerics)
        self.up: Linear = source.linear(prefix, (up,), [inner], config.hidden_size, own.bias)
        self.down: Linear = source.linear(prefix, (down,), [config.hidden_size], inner, own.bias)

    def forward(self, x: Tensor) -> Tensor:
        """``x [T, hidden_size]``, already normalised -> what the block adds to the residual stream."""
        return self.down(self.activation(self.up(x)))

    def storage_size(self) -> int:
        """Bytes held besides the linear layers."""
        return 0

    def linears(self) -> Iterator[tuple[str, Linear]]:
        yield "up", self.up
        yield "down", self.down
