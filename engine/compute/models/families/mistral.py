"""Mistral 7B (Jiang et al. 2023) and its kin: Llama with a sliding window."""

from __future__ import annotations

from engine.compute.models.common import read_decoder
from engine.compute.models.decoder import Decoder
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig


def read_config(raw: RawConfig) -> ModelConfig:
    """One window for all layers; null means none, and a silent file means 4096."""
    window = raw.optional_integer("sliding_window", 4096)
    return read_decoder(raw, windows=(window,) * raw.integer("num_hidden_layers", most=10_000))


Model = Decoder
