"""DeepSeek-V2 and V2-Lite: multi-head latent attention, and sparse feed-forward blocks after the first layers."""

from __future__ import annotations

from dataclasses import replace

from engine.checkpoints.config import RawConfig
from engine.layers.mla import LatentAttention
from engine.layers.rotary import softmax_scale
from engine.models.base import LatentShape, ModelConfig, WeightSource
from engine.models.common import read_decoder
from engine.models.decoder import Decoder, PreNormLayer


def read_config(raw: RawConfig) -> ModelConfig:
    """The softmax is sharpened as the extension of the context wants it."""
    latent = _latent(raw)
    head_dim, rope, bias = latent.nope + latent.rope, raw.rope(), raw.flag("attention_bias", False)
    heads = raw.integer("num_attention_heads")
    if raw.integer("num_key_value_heads", heads) != heads:
        raise raw.wrong("its heads share keys and values, which latent attention does not do")
    return replace(
        read_decoder(raw, head_dim=head_dim, rope=rope, mlp_bias=raw.flag("mlp_bias", False)),
        num_kv_heads=1,
        head_dim=head_dim,
        qkv_bias=bias,
        output_bias=bias,
        latent=latent,
        attention_scale=head_dim**-0.5 * softmax_scale(rope),
    )


def _latent(raw: RawConfig) -> LatentShape:
    """Raises :class:`CheckpointError` for widths that cannot be."""
    shape = LatentShape(
        rank=raw.integer("kv_lora_rank", 512),
        nope=raw.integer("qk_nope_head_dim", 128),
        rope=raw.integer("qk_rope_head_dim", 64),
        value=raw.integer("v_head_dim", 128),
        q_rank=raw.optional_integer("q_lora_rank", 1536),
    )
    if shape.rope % 2:
        raise raw.wrong(f"{shape.rope} dimensions of a head rotate, and rotary embedding needs pairs")
    return shape


class LatentLayer(PreNormLayer):
    """The plain layer with the other attention."""

    attention_kind = LatentAttention


class Model(Decoder):
    """DeepSeek-V2 (2024, arXiv 2405.04434)."""

    layer = LatentLayer

    def __init__(self, config: ModelConfig, source: WeightSource) -> None:
        super().__init__(config, source)
        # A step's forms are the same in all layers: planned once.
        attentions = [layer.attention for layer in self.layers if isinstance(layer, LatentLayer)]
        for attention in attentions:
            attention.forms = attentions[0].forms
