"""Qwen3.5, 3.6 and 3.8 (Qwen Team 2026), dense and with experts: three gated delta nets to one gated attention.

Their multi-token layer is :class:`engine.compute.models.heads.mtp.QwenMultiToken`, their tower
:mod:`engine.compute.vision.qwen3`.
"""

from __future__ import annotations

from engine.compute.models.common import read_decoder, read_moe, some_states
from engine.compute.models.decoder import Decoder
from engine.config.feed_forward import ExpertNames, MoEConfig
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig
from engine.config.states import RecurrentShape

STATE, ATTENTION = "linear_attention", "full_attention"
"""Names in ``layer_types`` of the two kinds of layers."""


def read_config(raw: RawConfig) -> ModelConfig:
    """Every ``full_attention_interval``-th layer (4th) has attention where the file has no ``layer_types``."""
    bias = raw.flag("attention_bias", False)
    recurrent = _states(raw)
    experts = "Moe" in raw.architecture or "Next" in raw.architecture
    return read_decoder(
        raw,
        head_dim=256,
        max_position=raw.integer("max_position_embeddings", 32768),
        intermediate_size=raw.integer("moe_intermediate_size" if experts else "intermediate_size"),
        attention_bias=bias,
        qk_norm=True,
        unit_offset_norms=True,
        output_gate=True,
        rope=raw.rope(10_000_000.0, partial=0.25),
        moe=read_experts(raw) if experts else None,
        recurrent=recurrent,
    )


def _states(raw: RawConfig) -> RecurrentShape | None:
    """Raises :class:`CheckpointError` for heads that cannot be shared out."""
    layers = raw.integer("num_hidden_layers", most=10_000)
    types = raw.layer_types(layers, (ATTENTION, STATE))
    if types is None:
        every = raw.integer("full_attention_interval", 4)
        types = [ATTENTION if (index + 1) % every == 0 else STATE for index in range(layers)]
    shape = RecurrentShape(
        layers=tuple(kind == STATE for kind in types),
        key_heads=raw.integer("linear_num_key_heads", 16),
        value_heads=raw.integer("linear_num_value_heads", 32),
        key=raw.integer("linear_key_head_dim", 128),
        value=raw.integer("linear_value_head_dim", 128),
        kernel=raw.integer("linear_conv_kernel_dim", 4, least=2, most=64),
    )
    if shape.value_heads % shape.key_heads:
        raise raw.wrong(f"{shape.value_heads} value heads cannot share {shape.key_heads} key heads evenly")
    return some_states(raw, shape)


def read_experts(raw: RawConfig) -> MoEConfig:
    """All layers have experts, and one more that every row asks, as much as a gate of its own says."""
    return read_moe(
        raw,
        count="num_experts",
        per_token=8,
        intermediate_size=raw.integer("moe_intermediate_size", 512),
        sparse=(True,) * raw.integer("num_hidden_layers", most=10_000),
        normalised=True,
        shared_size=raw.integer("shared_expert_intermediate_size", 512),
        names=ExpertNames(shared="shared_expert", shared_gate="shared_expert_gate"),
    )


Model = Decoder
