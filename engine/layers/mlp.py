"""The gated feed-forward block (SwiGLU, Shazeer 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional as F

from engine.layers.linear.base import Linear
from engine.layers.numerics import by_row

if TYPE_CHECKING:
    from engine.models.base import ModelConfig, WeightSource


class GatedMLP:
    """``down(silu(gate(x)) * up(x))`` with gate and up fused."""

    def __init__(self, config: ModelConfig, source: WeightSource, prefix: str) -> None:
        """``prefix`` names the block in the checkpoint, such as ``model.layers.0.mlp.``."""
        inner = config.intermediate_size
        self.numerics = source.numerics
        self.gate_up: Linear = source.linear(
            prefix, ("gate_proj", "up_proj"), [inner, inner], config.hidden_size, config.mlp_bias
        )
        self.down: Linear = source.linear(prefix, ("down_proj",), [config.hidden_size], inner, config.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        """``x [T, hidden_size]``, already normalised -> what the block adds to the residual stream."""
        gate, up = self.gate_up(x).chunk(2, -1)
        gate = by_row(F.silu, gate) if self.numerics.batch_invariant else F.silu(gate)
        return self.down(gate.mul_(up))

    def linears(self) -> Iterator[tuple[str, Linear]]:
        yield "gate_up", self.gate_up
        yield "down", self.down
