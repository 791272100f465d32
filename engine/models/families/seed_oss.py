"""Seed-OSS (ByteDance 2025): Llama with biases on q, k and v."""

from __future__ import annotations

from dataclasses import replace

from engine.model_config.model import ModelConfig
from engine.model_config.raw import RawConfig
from engine.models.common import read_decoder
from engine.models.decoder import Decoder


def read_config(raw: RawConfig) -> ModelConfig:
    """The output of attention has a bias of its own switch."""
    config = read_decoder(
        raw,
        head_dim=128,
        attention_bias=raw.flag("attention_bias", True),
        mlp_bias=raw.flag("mlp_bias", False),
        max_position=raw.integer("max_position_embeddings", 524_288),
    )
    return replace(config, output_bias=raw.flag("attention_out_bias", False))


Model = Decoder
