"""Granite 3: Llama with factors on the embedding, the residual stream, the scores and the logits."""

from __future__ import annotations

from engine.model_config.model import ModelConfig
from engine.model_config.raw import RawConfig
from engine.models.common import read_decoder
from engine.models.decoder import Decoder


def read_config(raw: RawConfig) -> ModelConfig:
    """All factors are 1 where the file is silent, that on the scores too."""
    bias = raw.flag("attention_bias", False)
    return read_decoder(
        raw,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=raw.flag("mlp_bias", False),
        embedding_scale=raw.positive("embedding_multiplier", 1.0),
        residual_scale=raw.positive("residual_multiplier", 1.0),
        attention_scale=raw.positive("attention_multiplier", 1.0),
        logit_divisor=raw.positive("logits_scaling", 1.0),
    )


class Model(Decoder):
    """Granite 3 (IBM 2024)."""
