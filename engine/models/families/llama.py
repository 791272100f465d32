"""Llama 2, 3 and what is saved in their shape (SmolLM, TinyLlama, Yi…)."""

from __future__ import annotations

from engine.model_config.model import ModelConfig
from engine.model_config.raw import RawConfig
from engine.models.common import read_decoder
from engine.models.decoder import Decoder


def read_config(raw: RawConfig) -> ModelConfig:
    """Biases where the file asks for them; full attention everywhere."""
    bias = raw.flag("attention_bias", False)
    return read_decoder(raw, qkv_bias=bias, output_bias=bias, mlp_bias=raw.flag("mlp_bias", False))


class Model(Decoder):
    """Llama (Touvron et al. 2023; Llama 3.1 for its rope scaling)."""
