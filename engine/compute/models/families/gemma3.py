"""Gemma 3's text models (Gemma Team 2025): Gemma 2 with a norm of q and k for its caps, and another rotation in layers
with a window. EmbeddingGemma (Vera et al. 2025) is one whose tokens see those after them."""

from __future__ import annotations

from engine.compute.models.families import gemma2
from engine.config.model import ModelConfig
from engine.config.positions import RopeConfig
from engine.config.raw import RawConfig


def read_config(raw: RawConfig) -> ModelConfig:
    """Every ``sliding_window_pattern``-th layer (6th) sees all tokens and has the scaled rotation.

    ``attn_logit_softcapping`` is part of the files and, as in transformers, of no computation.
    """
    pattern = raw.integer("sliding_window_pattern", 6)
    layers = raw.integer("num_hidden_layers", most=10_000)
    return gemma2.read_gemma(
        raw,
        bidirectional=raw.flag("use_bidirectional_attention", False),
        pattern=pattern,
        softcap=None,
        logit_softcap=None,
        max_position=raw.integer("max_position_embeddings", 131072),
        qk_norm=True,
        rope=raw.rope(1_000_000.0, "full_attention"),
        local_rope=_local_rope(raw),
        local=gemma2.local_layers(raw, layers, pattern),
    )


def _local_rope(raw: RawConfig) -> RopeConfig:
    """Older files have only a base for these layers: their ``rope_scaling`` belongs to the others."""
    parameters = raw.values.get("rope_parameters")
    if isinstance(parameters, dict) and parameters.get("sliding_attention") is not None:
        return raw.rope(10000.0, "sliding_attention", theta_key="rope_local_base_freq")
    return RopeConfig(raw.positive("rope_local_base_freq", 10000.0))


Model = gemma2.Model
