"""Qwen3 (Yang et al. 2025): heads of 128, a norm on every q and k head, no biases unless asked for."""

from __future__ import annotations

from engine.model_config.model import ModelConfig
from engine.model_config.raw import RawConfig
from engine.models.common import read_decoder, upper_windows
from engine.models.decoder import Decoder


def read_config(raw: RawConfig) -> ModelConfig:
    """A head has 128 dimensions where the file is silent."""
    bias = raw.flag("attention_bias", False)
    return read_decoder(raw, head_dim=128, attention_bias=bias, qk_norm=True, windows=upper_windows(raw))


Model = Decoder
