"""Granite 3 (IBM 2024): Llama with factors on the embedding, the residual stream, the scores and the logits."""

from __future__ import annotations

from typing import Any

from engine.compute.models.common import read_decoder
from engine.compute.models.decoder import Decoder
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig


def read_config(raw: RawConfig) -> ModelConfig:
    """Same as :func:`read_factors`, with the file's ``mlp_bias``, False where it has none."""
    return read_factors(raw, mlp_bias=raw.flag("mlp_bias", False))


def read_factors(raw: RawConfig, **own: Any) -> ModelConfig:
    """All factors are 1 where the file is silent, that on the scores too. ``own`` as in :func:`read_decoder`."""
    return read_decoder(
        raw,
        attention_bias=raw.flag("attention_bias", False),
        embedding_scale=raw.positive("embedding_multiplier", 1.0),
        residual_scale=raw.positive("residual_multiplier", 1.0),
        attention_scale=raw.positive("attention_multiplier", 1.0),
        logit_divisor=raw.positive("logits_scaling", 1.0),
        **own,
    )


Model = Decoder
