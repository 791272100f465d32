"""Seed-OSS (ByteDance 2025): Llama with biases on q, k and v."""

from __future__ import annotations

from engine.compute.models.common import read_decoder
from engine.compute.models.decoder import Decoder
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig


def read_config(raw: RawConfig) -> ModelConfig:
    """The output of attention has a bias of its own switch."""
    config = read_decoder(
        raw,
        head_dim=128,
        attention_bias=raw.flag("attention_bias", True),
        mlp_bias=raw.flag("mlp_bias", False),
        max_position=raw.integer("max_position_embeddings", 524_288),
    )
    return config.changed(output_bias=raw.flag("attention_out_bias", False))


Model = Decoder
