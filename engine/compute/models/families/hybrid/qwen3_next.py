"""Qwen3-Next (Qwen Team 2025): Qwen3.5 with experts, whose delta nets' projections stand together for each key head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from engine.compute.layers.interface import WeightSource
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.recurrent.gated_delta_net import GatedDeltaNet
from engine.compute.models.decoder import Decoder, PreNormLayer
from engine.compute.models.families import qwen3_moe
from engine.compute.models.families.hybrid import qwen3_5
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig


def read_config(raw: RawConfig) -> ModelConfig:
    """Layers without experts as in Qwen3."""
    raw = RawConfig({"num_experts_per_tok": 10, "norm_topk_prob": True} | raw.values, raw.file)
    config = qwen3_5.read_config(raw)
    sparse = qwen3_moe.sparse_layers(raw)
    if not any(sparse):
        raise raw.wrong("none of its layers has experts, which no model of this family does")
    normalised, inner = raw.flag("norm_topk_prob", True), raw.integer("intermediate_size", 5632)
    moe = replace(qwen3_5.read_experts(raw), sparse=sparse, normalised=normalised)
    return config.changed(moe=moe, intermediate_size=inner)


class GroupedDeltaNet(GatedDeltaNet):
    """Rows of projections are those of the first key head: q, k, the values and gates of the heads that share them;
    and so on."""

    def _read_projections(self, source: WeightSource, prefix: str, size: int) -> None:
        shape = self.shape
        values = shape.value_heads * shape.value
        self.mixed = source.linear(prefix, ("in_proj_qkvz",), (shape.channels + values,), size, False)
        self.gates = source.linear(prefix, ("in_proj_ba",), (2 * shape.value_heads,), size, False)

    def project(self, times: Callable[[Linear], Tensor]) -> tuple[Tensor, Tensor]:
        """Same as :meth:`GatedDeltaNet.project`, for layers whose output features are grouped by key head."""
        shape = self.shape
        each = shape.value_heads // shape.key_heads
        heads = times(self.mixed).unflatten(1, (shape.key_heads, -1))
        parts = heads.split((shape.key, shape.key, each * shape.value, each * shape.value), 2)
        gates = times(self.gates).unflatten(1, (shape.key_heads, 2, each)).transpose(1, 2)
        return torch.cat([part.flatten(1) for part in parts], 1), gates.flatten(1)


class Qwen3NextLayer(PreNormLayer):
    state_block = GroupedDeltaNet, "linear_attn"


class Model(Decoder):
    layer = Qwen3NextLayer
