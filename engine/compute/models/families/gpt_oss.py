"""gpt-oss (OpenAI 2025): experts with a clamped activation and biases, sinks, and a window in every second layer."""

from __future__ import annotations

from engine.compute.models.common import read_decoder, read_moe
from engine.compute.models.decoder import Decoder
from engine.config.feed_forward import ExpertNames
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig

YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False}
"""The rotation where the file is silent."""


def read_config(raw: RawConfig) -> ModelConfig:
    """The first layer has a window. An expert's share is a softmax over the experts that were chosen."""
    layers = raw.integer("num_hidden_layers", most=10_000)
    window = raw.optional_integer("sliding_window", 128)
    types = raw.layer_types(layers) or ["sliding_attention", "full_attention"] * layers
    scaled = raw if raw.rope_values() else RawConfig(raw.values | {"rope_scaling": YARN}, raw.file)
    moe = read_moe(
        raw,
        count="num_local_experts",
        per_token=4,
        intermediate_size=raw.integer("intermediate_size"),
        sparse=(True,) * layers,
        routing="chosen",
        bias=True,
        swiglu_limit=raw.positive("swiglu_limit", 7.0),
        swiglu_alpha=raw.number("swiglu_alpha", 1.702),
        names=ExpertNames(router="router"),
    )
    return read_decoder(
        raw,
        head_dim=64,
        eps=1e-5,
        rope=scaled.rope(150_000.0),
        max_position=raw.integer("max_position_embeddings", 131072),
        windows=tuple(window if kind == "sliding_attention" else None for kind in types[:layers]),
        attention_bias=raw.flag("attention_bias", True),
        sinks=True,
        moe=moe,
    )


Model = Decoder
