"""Kimi-Linear (Moonshot AI 2025): Kimi Delta Attention, and latent attention without positions in every fourth layer.

Experts are DeepSeek-V3's.
"""

from __future__ import annotations

from engine.compute.layers.recurrent.separate_delta_net import KimiDeltaAttention
from engine.compute.models.common import some_states
from engine.compute.models.families import deepseek_v2, deepseek_v3
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig
from engine.config.states import RecurrentShape

STATE, ATTENTION = "linear_attention", "full_attention"
"""Names in ``layer_types`` of the two kinds of layers."""
NAMES = (
    (".block_sparse_moe.", ".mlp."),
    (".w1.", ".gate_proj."),
    (".w3.", ".up_proj."),
    (".w2.", ".down_proj."),
)
OTHER_KEYS = {
    "model_max_length": "max_position_embeddings",
    "moe_renormalize": "norm_topk_prob",
    "num_expert_group": "n_group",
    "num_experts": "n_routed_experts",
    "num_experts_per_token": "num_experts_per_tok",
    "num_shared_experts": "n_shared_experts",
    "num_local_experts": "n_routed_experts",
}
"""Keys of the file, with the names that DeepSeek-V3's file has for them."""


def read_config(raw: RawConfig) -> ModelConfig:
    """Sizes of the layers with states, and which they are, may stand in ``linear_attn_config``."""
    values = {key: value for key, value in raw.values.items() if key not in _LEFT_OUT and value is not None}
    values |= {name: values[key] for key, name in OTHER_KEYS.items() if key in values}
    values = {"q_lora_rank": None, "first_k_dense_replace": 1} | values
    raw = RawConfig(values, raw.file)
    if raw.values.get("moe_router_activation_func", "sigmoid") != "sigmoid":
        raise raw.wrong('"moe_router_activation_func" is not "sigmoid", which this family needs in Kvasir')
    config = deepseek_v2.read_latent(raw, deepseek_v3.read_experts)
    return config.changed(rotary=(False,) * config.num_layers, recurrent=_states(raw, config.num_layers))


_LEFT_OUT = ("head_dim", "rope_parameters", "rope_scaling")
"""Nothing rotates, and heads have the widths of latent attention."""


def _states(raw: RawConfig, layers: int) -> RecurrentShape | None:
    """Raises :class:`CheckpointError` for layers that are not said to be of either kind."""
    stated = raw.values.get("linear_attn_config") or {}
    if not isinstance(stated, dict):
        raise raw.wrong('"linear_attn_config" is not a JSON object')
    own = RawConfig(stated, raw.file)
    types = raw.layer_types(layers, (ATTENTION, STATE))
    if types is None:
        types = [ATTENTION if index and index % 4 == 0 else STATE for index in range(layers)]
        attending, others = stated.get("full_attn_layers"), stated.get("kda_layers")
        if attending is not None and others is not None:
            if not isinstance(attending, list) or not isinstance(others, list):
                raise raw.wrong('"full_attn_layers" and "kda_layers" are not lists of layers')
            if sorted(map(repr, [*attending, *others])) != sorted(map(repr, range(1, layers + 1))):
                raise raw.wrong(f'"full_attn_layers" and "kda_layers" do not name each of the {layers} layers once')
            types = [ATTENTION if index + 1 in attending else STATE for index in range(layers)]
    heads = own.integer("num_heads", raw.integer("linear_num_heads", 32))
    width = own.integer("head_dim", raw.integer("linear_head_dim", 128))
    shape = RecurrentShape(
        layers=tuple(kind == STATE for kind in types),
        key_heads=heads,
        value_heads=heads,
        key=width,
        value=width,
        kernel=own.integer("short_conv_kernel_size", raw.integer("linear_conv_kernel_dim", 4), least=2, most=64),
        channel_decays=True,
    )
    return some_states(raw, shape)


class KimiLinearLayer(deepseek_v2.LatentLayer):
    state_block = KimiDeltaAttention, "self_attn"


class Model(deepseek_v2.Model):
    layer = KimiLinearLayer
