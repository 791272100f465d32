"""Attention with a gate for each head, projected besides queries, keys and values (LFM3, Laguna)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.compute.layers.attention import Attention
from engine.compute.layers.linear.base import Linear

if TYPE_CHECKING:
    from engine.compute.layers.interface import WeightSource
    from engine.config.model import ModelConfig


class GatedAttention(Attention):
    """Attention whose heads' outputs are multiplied by gates, if the configuration has a ``head_gate``."""

    def __init__(self, config: ModelConfig, index: int, source: WeightSource, prefix: str) -> None:
        super().__init__(config, index, source, prefix)
        gate = config.attention.head_gate
        self.opens = torch.sigmoid if gate is not None and gate.activation == "sigmoid" else F.softplus
        self.gate: Linear | None = None
        if gate is not None:
            gates = self.heads * (self.head_dim if gate.of_elements else 1)
            self.reads_input = True
            self.gate = source.linear(prefix, ("g_proj",), [gates], config.hidden_size, False)

    def opened(self, out: Tensor, gate: Tensor | None, x: Tensor | None) -> Tensor:
        """Same as :meth:`Attention.opened`, with gates that a layer of its own computes from ``x``."""
        if self.gate is None:
            return out
        assert x is not None, "its gates read it"
        gates = self.numerics.by_row(self.opens, self.gate(x).float()).to(out.dtype)
        return (out.unflatten(1, (gates.shape[1], -1)) * gates[..., None]).flatten(1)

    def linears(self) -> Iterator[tuple[str, Linear]]:
        yield from super().linears()
        if self.gate is not None:
            yield "gate", self.gate
