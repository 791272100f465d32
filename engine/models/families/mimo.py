"""MiMo: Qwen2's decoder, with multi-token-prediction layers (engine/models/heads/mtp.py)."""

from __future__ import annotations

from engine.model_config.model import ModelConfig
from engine.model_config.raw import RawConfig
from engine.models.common import read_decoder, upper_windows
from engine.models.decoder import Decoder


def read_config(raw: RawConfig) -> ModelConfig:
    """The q, k, v biases are part of the architecture, as in Qwen2."""
    return read_decoder(raw, qkv_bias=True, windows=upper_windows(raw))


class Model(Decoder):
    """MiMo (Xiaomi 2025, arXiv 2505.07608)."""
