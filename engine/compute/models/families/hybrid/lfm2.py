"""LFM2 and LFM2.5 (Liquid AI 2025), dense and with experts: short convolutions, and a few layers of attention."""

from __future__ import annotations

from engine.compute.models.common import read_decoder, read_moe, some_states
from engine.compute.models.decoder import Decoder
from engine.config.feed_forward import MoEConfig
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig
from engine.config.states import ConvolutionShape

STATE, ATTENTION = "conv", "full_attention"
"""Names in ``layer_types`` of the two kinds of layers."""
NAMES = (
    (".feed_forward.w1.", ".mlp.gate_proj."),
    (".feed_forward.w3.", ".mlp.up_proj."),
    (".feed_forward.w2.", ".mlp.down_proj."),
    (".feed_forward.expert_bias", ".mlp.gate.e_score_correction_bias"),
    (".feed_forward.", ".mlp."),
    (".w1.", ".gate_proj."),
    (".w3.", ".up_proj."),
    (".w2.", ".down_proj."),
    (".self_attn.out_proj.", ".self_attn.o_proj."),
    (".q_layernorm.", ".q_norm."),
    (".k_layernorm.", ".k_norm."),
    (".operator_norm.", ".input_layernorm."),
    (".ffn_norm.", ".post_attention_layernorm."),
    ("model.embedding_norm.", "model.norm."),
)
"""Replacements for the checkpoints' names of parts that other families have too, one after the other."""


def read_config(raw: RawConfig) -> ModelConfig:
    """Without ``layer_types`` the layers of ``full_attn_idxs`` have attention (none stated: all)."""
    if raw.flag("conv_bias", False):
        raise raw.wrong("its convolutions have biases, which no model of this family does in Kvasir")
    experts = "Moe" in raw.architecture
    return read_decoder(
        raw,
        eps=raw.number("norm_eps", 1e-5),
        intermediate_size=raw.integer("intermediate_size") if experts else _inner(raw),
        max_position=raw.integer("max_position_embeddings", 128_000),
        tie_word_embeddings=raw.flag("tie_embedding", raw.flag("tie_word_embeddings", True)),
        qk_norm=True,
        rope=raw.rope(1_000_000.0),
        recurrent=_states(raw),
        moe=_experts(raw) if experts else None,
    )


def _inner(raw: RawConfig) -> int:
    """Inner width. The stated one is that of a block without gate, which this one is to be as large as."""
    inner = raw.integer("block_ff_dim", raw.integer("intermediate_size", 1))
    if not raw.flag("block_auto_adjust_ff_dim", True):
        return inner
    unit = raw.integer("block_multiple_of", 256)
    return unit * -(-int(raw.positive("block_ffn_dim_multiplier", 1.0) * int(2 * inner / 3)) // unit)


def _states(raw: RawConfig) -> ConvolutionShape | None:
    layers = raw.integer("num_hidden_layers", most=10_000)
    types = raw.layer_types(layers, (ATTENTION, STATE))
    if types is None:
        attending = raw.values.get("full_attn_idxs")
        attending = list(range(layers)) if attending is None else attending
        if not isinstance(attending, list):
            raise raw.wrong('"full_attn_idxs" is not a list of layers')
        types = [ATTENTION if index in attending else STATE for index in range(layers)]
    shape = ConvolutionShape(
        layers=tuple(kind == STATE for kind in types),
        channels=raw.integer("hidden_size"),
        kernel=raw.integer("conv_L_cache", 3, least=2, most=64),
    )
    return some_states(raw, shape)


def _experts(raw: RawConfig) -> MoEConfig:
    """All layers but the first have experts."""
    layers, dense = raw.integer("num_hidden_layers", most=10_000), raw.integer("num_dense_layers", 2, least=0)
    return read_moe(
        raw,
        count="num_experts",
        per_token=4,
        intermediate_size=raw.integer("moe_intermediate_size"),
        sparse=tuple(index >= dense for index in range(layers)),
        routing="sigmoid",
        choice_bias=raw.flag("use_expert_bias", True),
        normalised=raw.flag("norm_topk_prob", True),
        share_scale=raw.positive("routed_scaling_factor", 1.0),
    )


Model = Decoder
