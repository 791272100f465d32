"""Granite 4 (IBM 2025), dense and with experts: Granite's factors, and Mamba2 in place of attention in most layers."""

from __future__ import annotations

from engine.compute.models.common import read_mamba, read_moe, some_states
from engine.compute.models.decoder import Decoder
from engine.compute.models.families import granite
from engine.config.feed_forward import ExpertNames, MoEConfig
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig
from engine.config.states import MambaShape

STATES, ATTENTION = ("mamba", "linear_attention"), ("attention", "full_attention")
"""Names in ``layer_types`` of the two kinds of layers, before transformers 5 and since."""
NAMES = (
    (".block_sparse_moe.input_linear.weight", ".mlp.experts.gate_up_proj"),
    (".block_sparse_moe.output_linear.weight", ".mlp.experts.down_proj"),
    (".block_sparse_moe.router.layer.", ".mlp.gate."),
    (".block_sparse_moe.router.", ".mlp.gate."),
    (".block_sparse_moe.", ".mlp."),
    (".shared_mlp.input_linear.", ".mlp.gate_up_proj."),
    (".shared_mlp.output_linear.", ".mlp.down_proj."),
)
SIZES = {
    "heads": "mamba_n_heads",
    "width": "mamba_d_head",
    "groups": "mamba_n_groups",
    "state": "mamba_d_state",
    "kernel": "mamba_d_conv",
}


def read_config(raw: RawConfig) -> ModelConfig:
    """Without ``position_embedding_type`` "rope" nothing rotates. What every row passes is an MLP, or stands besides
    experts."""
    layers = raw.integer("num_hidden_layers", most=10_000)
    inner = raw.integer("shared_intermediate_size", 1024)
    rotates = raw.values.get("position_embedding_type") == "rope"
    return granite.read_factors(
        raw,
        intermediate_size=inner,
        fused_mlp=True,
        rotary=(rotates,) * layers,
        recurrent=_states(raw, layers),
        moe=_experts(raw, layers, inner) if raw.integer("num_local_experts", 8, least=0) else None,
    )


def _states(raw: RawConfig, layers: int) -> MambaShape | None:
    """Without ``layer_types`` all layers carry states, as far as transformers knows; no model is like that."""
    types = raw.layer_types(layers, (*STATES, *ATTENTION))
    states = [kind in STATES for kind in types or STATES[:1] * layers]
    if not any(states):
        return None
    raw = _with_width(raw)
    shape = read_mamba(
        raw,
        states,
        SIZES,
        convolution_bias=raw.flag("mamba_conv_bias", True),
        bias=raw.flag("mamba_proj_bias", False),
    )
    return some_states(raw, shape)


def _with_width(raw: RawConfig) -> RawConfig:
    """Heads may share out a multiple of the hidden size ("auto")."""
    if raw.values.get("mamba_d_head") not in (None, "auto"):
        return raw
    width = raw.integer("mamba_expand", 2) * raw.integer("hidden_size") // raw.integer("mamba_n_heads")
    return RawConfig(raw.values | {"mamba_d_head": width}, raw.file)


def _experts(raw: RawConfig, layers: int, inner: int) -> MoEConfig:
    """All layers have experts; a share is a softmax over the scores of the chosen ones."""
    return read_moe(
        raw,
        count="num_local_experts",
        per_token=2,
        intermediate_size=raw.integer("intermediate_size"),
        sparse=(True,) * layers,
        routing="chosen",
        shared_size=inner,
        names=ExpertNames(shared=""),
    )


Model = Decoder
