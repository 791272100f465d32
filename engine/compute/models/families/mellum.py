"""Mellum 2 (JetBrains 2026): Qwen3's experts, with a window in some layers, which rotate in a way of their own."""

from __future__ import annotations

from engine.compute.models.common import read_decoder, read_moe
from engine.compute.models.decoder import Decoder
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig

GLOBAL, LOCAL = "full_attention", "sliding_attention"
"""Names in ``layer_types`` of the two kinds of layers."""


def read_config(raw: RawConfig) -> ModelConfig:
    """All layers see all tokens, and have experts, where the file does not say which do."""
    layers = raw.integer("num_hidden_layers", most=10_000)
    window = raw.optional_integer("sliding_window", 1024)
    local = tuple(kind == LOCAL for kind in raw.layer_types(layers) or [GLOBAL] * layers)
    types = raw.layer_types(layers, ("dense", "sparse"), "mlp_layer_types")
    sparse = tuple(kind == "sparse" for kind in types or ["sparse"] * layers)
    moe = read_moe(
        raw,
        # transformers 5 writes the second name.
        count="num_experts" if "num_experts" in raw.values else "num_local_experts",
        per_token=8,
        intermediate_size=raw.integer("moe_intermediate_size", 896),
        sparse=sparse,
        normalised=raw.flag("norm_topk_prob", True),
    )
    return read_decoder(
        raw,
        head_dim=128,
        max_position=raw.integer("max_position_embeddings", 131_072),
        attention_bias=raw.flag("attention_bias", False),
        qk_norm=True,
        windows=tuple(window if narrow else None for narrow in local),
        local=local,
        rope=raw.rope(500_000.0, GLOBAL),
        local_rope=raw.rope(10_000.0, LOCAL),
        multi_token_local=(raw.layer_types(1, key="mtp_layer_types") or [LOCAL])[0] == LOCAL,
        moe=moe if any(sparse) else None,
    )


Model = Decoder
