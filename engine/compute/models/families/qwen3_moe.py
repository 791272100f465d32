"""Qwen3's mixtures of experts (Yang et al. 2025): Qwen3 with many small experts in some or all layers."""

from __future__ import annotations

from engine.compute.models.common import read_decoder, read_moe, upper_windows
from engine.compute.models.decoder import Decoder
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig


def read_config(raw: RawConfig) -> ModelConfig:
    """Every ``decoder_sparse_step``-th layer has experts, but for those that ``mlp_only_layers`` names."""
    moe = read_moe(
        raw,
        # transformers 5 writes the second name.
        count="num_experts" if "num_experts" in raw.values else "num_local_experts",
        per_token=8,
        intermediate_size=raw.integer("moe_intermediate_size", 768),
        sparse=sparse_layers(raw),
        normalised=raw.flag("norm_topk_prob", False),
    )
    return read_decoder(
        raw,
        max_position=raw.integer("max_position_embeddings", 32768),
        attention_bias=raw.flag("attention_bias", False),
        qk_norm=True,
        windows=upper_windows(raw),
        moe=moe,
    )


def sparse_layers(raw: RawConfig) -> tuple[bool, ...]:
    """Return, for each layer, True if it has experts."""
    layers, step = raw.integer("num_hidden_layers", most=10_000), raw.integer("decoder_sparse_step", 1)
    plain = raw.values.get("mlp_only_layers") or []
    if not isinstance(plain, list) or not all(type(index) is int and 0 <= index < layers for index in plain):
        raise raw.wrong(f'"mlp_only_layers" is not a list of layers, which are numbered from 0 to {layers - 1}')
    return tuple((index + 1) % step == 0 and index not in plain for index in range(layers))


Model = Decoder
