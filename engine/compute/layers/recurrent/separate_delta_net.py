"""Gated delta nets in whose checkpoints queries, keys and values have modules of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.compute.layers.linear.base import Linear
from engine.compute.layers.recurrent.gated_delta_net import GatedDeltaNet

if TYPE_CHECKING:
    from engine.compute.layers.interface import WeightSource
    from engine.config.model import ModelConfig

NORM_EPS = 1e-5
"""Epsilon of the norm of the result that is read in OLMo-Hybrid, whatever that of the stream's norms is."""


class SeparateDeltaNet(GatedDeltaNet):
    """OLMo-Hybrid's (2026)."""

    output_name, norm_name = "o_proj", "o_norm"

    def __init__(self, config: ModelConfig, index: int, source: WeightSource, prefix: str) -> None:
        super().__init__(config, index, source, prefix)
        self.weights = self.weights._replace(eps=NORM_EPS)

    def _parts(self) -> tuple[int, int, int]:
        """Channels of queries, keys and values."""
        keys = self.shape.key_heads * self.shape.key
        return keys, keys, self.shape.value_heads * self.shape.value

    def _read_projections(self, source: WeightSource, prefix: str, size: int) -> None:
        heads, parts = self.shape.value_heads, self._parts()
        names = ("q_proj", "k_proj", "v_proj", "g_proj")
        self.mixed = source.linear(prefix, names, (*parts, parts[2]), size, False)
        self.gates = source.linear(prefix, ("b_proj", "a_proj"), (heads, heads), size, False)

    def _taps(self, source: WeightSource, prefix: str) -> Tensor:
        names = zip("qkv", self._parts(), strict=True)
        shapes = ((name, (channels, 1, self.shape.kernel)) for name, channels in names)
        return torch.cat([source.array(f"{prefix}{name}_conv1d.weight", shape)[:, 0] for name, shape in shapes])


class KimiDeltaAttention(SeparateDeltaNet):
    """Kimi Delta Attention (Kimi Team 2025, arXiv 2510.26692): decays of channels, and gates of low rank."""

    def __init__(self, config: ModelConfig, index: int, source: WeightSource, prefix: str) -> None:
        super().__init__(config, index, source, prefix)
        self.weights = self.weights._replace(eps=config.rms_norm_eps)

    def _read_projections(self, source: WeightSource, prefix: str, size: int) -> None:
        shape, parts = self.shape, self._parts()
        names = ("q_proj", "k_proj", "v_proj", "b_proj", "f_a_proj", "g_a_proj")
        self.sizes = (sum(parts), shape.value_heads, shape.key, shape.value)
        self.mixed = source.linear(prefix, names, (*parts, *self.sizes[1:]), size, False)
        self.gates = source.linear(prefix, ("f_b_proj",), (shape.decays,), shape.key, False)
        self.gate: Linear = source.linear(prefix, ("g_b_proj",), (parts[2],), shape.value, False)

    def project(self, times: Callable[[Linear], Tensor]) -> tuple[Tensor, Tensor]:
        qkv, shares, decays, gate = times(self.mixed).split(self.sizes, 1)
        return torch.cat((qkv, self.gate(gate)), 1), torch.cat((shares, self.gates(decays)), 1)

    def linears(self) -> Iterator[tuple[str, Linear]]:
        yield from super().linears()
        yield "gate", self.gate
