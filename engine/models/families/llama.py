"""Llama (Touvron et al. 2023; rope scaling: Llama 3.1) and what is saved in its shape (SmolLM, TinyLlama, Yi…)."""

from __future__ import annotations

from engine.model_config.model import ModelConfig
from engine.model_config.raw import RawConfig
from engine.models.common import read_decoder
from engine.models.decoder import Decoder


def read_config(raw: RawConfig) -> ModelConfig:
    """Biases where the file asks for them; full attention everywhere."""
    return read_decoder(raw, attention_bias=raw.flag("attention_bias", False), mlp_bias=raw.flag("mlp_bias", False))


Model = Decoder
