"""Laguna (Poolside 2026): two kinds of layers that differ in heads, window and rotation; gates; many experts."""

from __future__ import annotations

from engine.compute.layers.gated_attention import GatedAttention
from engine.compute.layers.interface import WeightSource
from engine.compute.models.common import read_decoder, read_moe
from engine.compute.models.decoder import Decoder, PreNormLayer
from engine.config.attention import HeadGate
from engine.config.feed_forward import MoEConfig
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig

GLOBAL, LOCAL = "full_attention", "sliding_attention"
"""Names in ``layer_types`` of the two kinds of layers."""
NAMES = (
    (".mlp.experts.e_score_correction_bias", ".mlp.gate.e_score_correction_bias"),
    (".mlp.shared_expert.", ".mlp.shared_experts."),
)


def read_config(raw: RawConfig) -> ModelConfig:
    """All layers see all tokens where the file has no ``layer_types``. Raises :class:`CheckpointError` for heads that
    cannot share keys, and for what the family may have and Kvasir has not."""
    if raw.flag("moe_apply_router_weight_on_input", False):
        raise raw.wrong('"moe_apply_router_weight_on_input" is true, which Kvasir does not compute')
    if raw.number("moe_router_logit_softcapping", 0.0) > 0:
        raise raw.wrong('"moe_router_logit_softcapping" is not 0, which Kvasir does not compute')
    layers, gating = raw.integer("num_hidden_layers", most=10_000), raw.values.get("gating", True)
    if gating not in (True, "per-head", "per-element"):
        raise raw.wrong(f'"gating" is {gating!r:.100}, where true, "per-head" or "per-element" is needed')
    local = tuple(kind == LOCAL for kind in raw.layer_types(layers) or [GLOBAL] * layers)
    window, heads = raw.optional_integer("sliding_window", 512), _heads(raw, layers)
    return read_decoder(
        raw,
        head_dim=128,
        num_heads=max(heads),
        heads_per_layer=heads if len(set(heads)) > 1 else (),
        max_position=raw.integer("max_position_embeddings", 131_072),
        attention_bias=raw.flag("attention_bias", False),
        qk_norm=True,
        head_gate=HeadGate("softplus", of_elements=gating == "per-element"),
        windows=tuple(window if narrow else None for narrow in local),
        local=local,
        rope=raw.rope(500_000.0, GLOBAL, partial=0.5),
        local_rope=raw.rope(10_000.0, LOCAL, partial=1.0),
        moe=_experts(raw, layers),
    )


def _heads(raw: RawConfig, layers: int) -> tuple[int, ...]:
    usual, key_heads = raw.integer("num_attention_heads"), raw.integer("num_key_value_heads", 8)
    stated = raw.values.get("num_attention_heads_per_layer") or [usual] * layers
    if not isinstance(stated, list) or len(stated) != layers:
        raise raw.wrong(f'"num_attention_heads_per_layer" does not have one entry for each of the {layers} layers')
    for heads in stated:
        if type(heads) is not int or heads < 1 or heads % key_heads:
            raise raw.wrong(f"a layer's {heads!r:.100} attention heads cannot share {key_heads} key-value heads evenly")
    return tuple(stated)


def _experts(raw: RawConfig, layers: int) -> MoEConfig | None:
    """All layers but the first where the file does not say which; None where none has any."""
    types = raw.layer_types(layers, ("dense", "sparse"), "mlp_layer_types")
    sparse = tuple(kind == "sparse" for kind in types) if types else (False,) + (True,) * (layers - 1)
    if not any(sparse):
        return None
    return read_moe(
        raw,
        count="num_experts" if "num_experts" in raw.values else "num_local_experts",
        per_token=8,
        intermediate_size=raw.integer("moe_intermediate_size", 512),
        sparse=sparse,
        routing="sigmoid",
        choice_bias=True,
        normalised=True,
        share_scale=raw.positive("moe_routed_scaling_factor", 1.0),
        shared_size=raw.integer("shared_expert_intermediate_size", 512),
    )


class LagunaLayer(PreNormLayer):
    """Decoder layer with its own number of heads."""

    attention_kind = GatedAttention

    def __init__(self, config: ModelConfig, index: int, source: WeightSource) -> None:
        heads = config.attention.heads_per_layer
        super().__init__(config.changed(num_heads=heads[index]) if heads else config, index, source)


class Model(Decoder):
    layer = LagunaLayer
