"""SmolLM3 (Hugging Face 2025): Llama whose every fourth layer has no position embedding.

Layers without rotation are after Yang et al. 2025, "RoPE to NoPE and back".
"""

from __future__ import annotations

from engine.compute.models.common import read_decoder
from engine.compute.models.decoder import Decoder
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig


def read_config(raw: RawConfig) -> ModelConfig:
    """``no_rope_layers`` says 1 where a layer rotates; a window only where a layer does not."""
    layers = raw.integer("num_hidden_layers", most=10_000)
    every = raw.integer("no_rope_layer_interval", 4)
    stated = raw.values.get("no_rope_layers") or [int((index + 1) % every != 0) for index in range(layers)]
    if not isinstance(stated, list) or len(stated) < layers:
        raise raw.wrong(f'"no_rope_layers" does not have one entry for each of the {layers} layers')
    rotary = tuple(bool(value) for value in stated[:layers])
    window = raw.optional_integer("sliding_window") if raw.flag("use_sliding_window", False) else None
    types = raw.layer_types(layers) or ["full_attention" if rotates else "sliding_attention" for rotates in rotary]
    return read_decoder(
        raw,
        theta=2000000.0,
        rotary=rotary,
        windows=tuple(window if kind == "sliding_attention" else None for kind in types),
        tie_word_embeddings=raw.flag("tie_word_embeddings", True),
        attention_bias=raw.flag("attention_bias", False),
        mlp_bias=raw.flag("mlp_bias", False),
    )


Model = Decoder
