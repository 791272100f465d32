"""LFM3 (Liquid AI 2026): LFM2 with norms after its blocks, gates of heads, and a window in some attention layers."""

from __future__ import annotations

from engine.compute.layers.gated_attention import GatedAttention
from engine.compute.models.common import proportional_rope, read_decoder, some_states
from engine.compute.models.decoder import Decoder
from engine.compute.models.families.gemma2 import SandwichLayer
from engine.compute.models.families.hybrid import lfm2
from engine.config.attention import HeadGate
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig
from engine.config.states import ConvolutionShape

STATE, GLOBAL, LOCAL = "conv", "full_attention", "sliding_attention"
"""Names in ``layer_types`` of the kinds of layers."""
NAMES = (
    (".self_attn.gate_proj.", ".self_attn.g_proj."),
    (".post_operator_norm.", ".post_attention_layernorm."),
    (".post_ffn_norm.", ".post_feedforward_layernorm."),
    (".ffn_norm.", ".pre_feedforward_layernorm."),
    *lfm2.NAMES,
)


def read_config(raw: RawConfig) -> ModelConfig:
    """Without ``layer_types`` every fourth layer from the third on sees all tokens, from the fifth on a window."""
    if raw.flag("conv_bias", False):
        raise raw.wrong("its convolutions have biases, which no model of this family does in Kvasir")
    if not raw.flag("use_sandwich_norm", True):
        raise raw.wrong('"use_sandwich_norm" is false, which Kvasir does not compute in this family')
    layers, window = raw.integer("num_hidden_layers", most=10_000), raw.optional_integer("sliding_window", 256)
    types = raw.layer_types(layers, (STATE, GLOBAL, LOCAL)) or [
        GLOBAL if index % 4 == 2 else LOCAL if index and index % 4 == 0 else STATE for index in range(layers)
    ]
    shape = ConvolutionShape(
        layers=tuple(kind == STATE for kind in types),
        channels=raw.integer("hidden_size"),
        kernel=raw.integer("conv_L_cache", 7, least=2, most=64),
    )
    head_dim = raw.integer("head_dim", 128)
    return read_decoder(
        raw,
        head_dim=head_dim,
        rms_norm_eps=raw.number("norm_eps", 1e-5),
        max_position=raw.integer("max_position_embeddings", 128_000),
        tie_word_embeddings=raw.flag("tie_embedding", raw.flag("tie_word_embeddings", True)),
        attention_bias=raw.flag("attention_bias", False),
        qk_norm=True,
        head_gate=HeadGate("sigmoid") if raw.flag("use_attention_gate", True) else None,
        windows=tuple(window if kind == LOCAL else None for kind in types),
        local=tuple(kind == LOCAL for kind in types),
        rope=proportional_rope(raw, GLOBAL, head_dim, share=0.5),
        local_rope=raw.rope(10_000.0, LOCAL),
        recurrent=some_states(raw, shape),
    )


class Lfm3Layer(SandwichLayer):
    attention_kind = GatedAttention


class Model(Decoder):
    layer = Lfm3Layer
