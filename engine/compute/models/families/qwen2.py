"""Qwen2 and Qwen2.5 (Yang et al. 2024): biases on q, k and v; optionally a window in the upper layers.

MiMo (Xiaomi 2025, arXiv 2505.07608) is the same, with multi-token-prediction layers
(engine/compute/models/heads/mtp.py).
"""

from __future__ import annotations

from engine.compute.models.common import read_decoder, upper_windows
from engine.compute.models.decoder import Decoder
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig


def read_config(raw: RawConfig) -> ModelConfig:
    """The q, k, v biases are part of the architecture, not of the file."""
    return read_decoder(raw, qkv_bias=True, windows=upper_windows(raw))


Model = Decoder
