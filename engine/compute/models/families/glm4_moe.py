"""GLM-4.5, 4.6 and their Air (Z.ai 2025): grouped-query attention with half-rotated heads, experts as DeepSeek-V3's."""

from __future__ import annotations

from engine.compute.models.common import read_decoder
from engine.compute.models.decoder import Decoder
from engine.compute.models.families import deepseek_v3
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig


def read_config(raw: RawConfig) -> ModelConfig:
    """Biases, where there are some, are those of q, k and v."""
    config = read_decoder(
        raw,
        eps=1e-5,
        attention_bias=raw.flag("attention_bias", False),
        max_position=raw.integer("max_position_embeddings", 131072),
        qk_norm=raw.flag("use_qk_norm", False),
        rope=raw.rope(partial=0.5),
        moe=deepseek_v3.read_experts(raw),
    )
    return config.changed(output_bias=False)


Model = Decoder
