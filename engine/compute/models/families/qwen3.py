"""Qwen3 (Yang et al. 2025): heads of 128, a norm on every q and k head, no biases unless asked for."""

from __future__ import annotations

from engine.compute.models.common import read_decoder, upper_windows
from engine.compute.models.decoder import Decoder
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig


def read_config(raw: RawConfig) -> ModelConfig:
    """A head has 128 dimensions where the file is silent."""
    bias = raw.flag("attention_bias", False)
    return read_decoder(raw, head_dim=128, attention_bias=bias, qk_norm=True, windows=upper_windows(raw))


Model = Decoder
