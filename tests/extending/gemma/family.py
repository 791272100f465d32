"""Gemma (Gemma Team 2024): a Llama with norms of 1 + w, GELU, and embeddings times the root of their width."""

from __future__ import annotations

from engine.compute.models.common import read_decoder
from engine.compute.models.decoder import Decoder
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig


def read_config(raw: RawConfig) -> ModelConfig:
    """Heads of 256 and tied embeddings where the file is silent."""
    return read_decoder(
        raw,
        head_dim=256,
        activation="gelu_tanh",
        tie_word_embeddings=raw.flag("tie_word_embeddings", True),
        attention_bias=raw.flag("attention_bias", False),
        unit_offset_norms=True,
        embedding_scale=raw.integer("hidden_size") ** 0.5,
    )


Model = Decoder
