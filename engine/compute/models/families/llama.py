"""Llama (Touvron et al. 2023; rope scaling: Llama 3.1) and what is saved in its shape (SmolLM, TinyLlama, Yi…)."""

from __future__ import annotations

from engine.compute.models.common import read_decoder
from engine.compute.models.decoder import Decoder
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig


def read_config(raw: RawConfig) -> ModelConfig:
    """Biases where the file asks for them; full attention everywhere."""
    return read_decoder(raw, attention_bias=raw.flag("attention_bias", False), mlp_bias=raw.flag("mlp_bias", False))


Model = Decoder
