"""DeepSeek-V2 and V2-Lite: multi-head latent attention, and sparse feed-forward blocks after the first layers."""

from __future__ import annotations

from collections.abc import Callable

from engine.compute.layers.interface import WeightSource
from engine.compute.layers.mla import LatentAttention
from engine.compute.layers.rotary import softmax_scale
from engine.compute.models.common import read_decoder, read_moe
from engine.compute.models.decoder import Decoder, PreNormLayer
from engine.config.attention import LatentShape
from engine.config.feed_forward import MoEConfig
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig


def read_config(raw: RawConfig) -> ModelConfig:
    """The softmax is sharpened as the extension of the context wants it."""
    return read_latent(raw, _experts)


def read_latent(raw: RawConfig, read_experts: Callable[[RawConfig], MoEConfig | None]) -> ModelConfig:
    """A decoder with latent attention, and experts, if any, as ``read_experts`` reads them."""
    latent = _latent(raw)
    head_dim, rope, bias = latent.nope + latent.rope, raw.rope(), raw.flag("attention_bias", False)
    heads = raw.integer("num_attention_heads")
    if raw.integer("num_key_value_heads", heads) != heads:
        raise raw.wrong("its heads share keys and values, which latent attention does not do")
    return read_decoder(raw, head_dim=head_dim, rope=rope, mlp_bias=raw.flag("mlp_bias", False)).changed(
        num_kv_heads=1,
        head_dim=head_dim,
        qkv_bias=bias,
        output_bias=bias,
        latent=latent,
        moe=read_experts(raw),
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


def _experts(raw: RawConfig) -> MoEConfig | None:
    """None where no layer has any. Raises :class:`CheckpointError` for choices that the family does not make."""
    layers, first = raw.integer("num_hidden_layers", most=10_000), raw.integer("first_k_dense_replace", 0, least=0)
    if first >= layers or raw.optional_integer("n_routed_experts", 64) is None:
        return None
    method, scoring = raw.values.get("topk_method", "greedy"), raw.values.get("scoring_func", "softmax")
    if method not in ("greedy", "group_limited_greedy") or scoring != "softmax":
        raise raw.wrong(f"its experts are chosen by {method!r} of {scoring!r}, which this family does not do in Kvasir")
    if raw.flag("norm_topk_prob", False) or raw.integer("moe_layer_freq", 1) != 1:
        raise raw.wrong("it normalises its experts' shares or spreads their layers, which no model of this family does")
    grouped, inner = method == "group_limited_greedy", raw.integer("moe_intermediate_size", 1407)
    return read_moe(
        raw,
        count="n_routed_experts",
        per_token=None,
        intermediate_size=inner,
        sparse=tuple(index >= first for index in range(layers)),
        share_scale=raw.positive("routed_scaling_factor", 1.0),
        groups=raw.integer("n_group") if grouped else 1,
        groups_per_token=raw.integer("topk_group") if grouped else 1,
        shared_size=inner * (raw.optional_integer("n_shared_experts", 2) or 0),
    )


class LatentLayer(PreNormLayer):
    """The plain layer with the other attention."""

    attention_kind = LatentAttention


class Model(Decoder):
    """DeepSeek-V2 (2024, arXiv 2405.04434)."""

    layer = LatentLayer

    def __init__(self, config: ModelConfig, source: WeightSource) -> None:
        super().__init__(config, source)
        # A step's forms are the same in all layers: planned once.
        blocks = [layer.attention for layer in self.layers if isinstance(layer, LatentLayer)]
        latent = [block for block in blocks if isinstance(block, LatentAttention)]
        for block in latent:
            block.forms = latent[0].forms
