"""Ministral 3 (Mistral AI 2025): Llama with YaRN, and queries that grow with their position as Llama 4's do."""

from __future__ import annotations

from dataclasses import replace

from engine.compute.models.common import read_decoder
from engine.compute.models.decoder import Decoder
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig

ROPE = {
    "rope_type": "yarn", "rope_theta": 1_000_000.0, "factor": 16.0, "original_max_position_embeddings": 16384,
    "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
}  # fmt: skip
"""The rotation where the file is silent."""


def read_config(raw: RawConfig) -> ModelConfig:
    """A silent file has no window."""
    raw = raw if raw.rope_values() else RawConfig(raw.values | {"rope_parameters": ROPE}, raw.file)
    values = RawConfig(raw.rope_values(), raw.file)
    beta, original = (
        values.number("llama_4_scaling_beta", 0.0),
        values.optional_integer("original_max_position_embeddings"),
    )
    if beta and original is None:
        raise raw.wrong("its queries grow with their position, and nothing says from where on")
    window = raw.optional_integer("sliding_window")
    rope = replace(raw.rope(1_000_000.0), query_beta=beta, original_max_position=original or 0)
    return read_decoder(
        raw,
        head_dim=128,
        eps=1e-5,
        max_position=raw.integer("max_position_embeddings", 262144),
        windows=(window,) * raw.integer("num_hidden_layers", most=10_000),
        rope=rope,
    )


Model = Decoder
