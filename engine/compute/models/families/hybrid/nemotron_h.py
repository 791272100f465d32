"""Nemotron-H and Nemotron 3 (NVIDIA 2025): layers of one block each, Mamba2, attention, an MLP or experts.

Nothing rotates, and the activation between two layers of an MLP is a squared ReLU. In Nemotron 3 Super experts read a
projection of the stream. A multi-token layer, one of attention and one of experts, is read as Qwen3-Next's.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from engine.cache.stores.states import StateRuns, StateStore
from engine.compute.layers.attention import Attention
from engine.compute.layers.interface import Step, WeightSource
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.moe import SparseMLP
from engine.compute.layers.norm import read_norm
from engine.compute.layers.plain_mlp import PlainMLP
from engine.compute.layers.recurrent.mamba import Mamba2
from engine.compute.layers.residual import ResidualStream
from engine.compute.models.common import read_decoder, read_mamba, read_moe, some_states
from engine.compute.models.decoder import Decoder
from engine.config.feed_forward import ExpertNames, MoEConfig
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig
from engine.config.states import MambaShape

STATE, ATTENTION, MLP, EXPERTS = KINDS = ("linear_attention", "full_attention", "mlp", "moe")
"""Names in ``layers_block_type`` of the kinds of layers..."""
OTHERS = {"M": STATE, "*": ATTENTION, "-": MLP, "E": EXPERTS, "mamba": STATE, "attention": ATTENTION}
"""... and ``hybrid_override_pattern``, by a letter each, and files from before transformers 5."""
NAMES = (
    ("backbone.", "model."),
    ("model.embeddings.", "model.embed_tokens."),
    ("model.norm_f.", "model.norm."),
    ("mtp.layers.0.eh_proj.", "mtp.fc."),
    ("mtp.layers.0.enorm.", "mtp.pre_fc_norm_embedding."),
    ("mtp.layers.0.hnorm.", "mtp.pre_fc_norm_hidden."),
    ("mtp.layers.0.norm.", "mtp.layers.0.input_layernorm."),
    ("mtp.layers.0.mixer.", "mtp.layers.0.self_attn."),
    ("mtp.layers.1.norm.", "mtp.layers.0.post_attention_layernorm."),
    ("mtp.layers.1.mixer.", "mtp.layers.0.mlp."),
    ("mtp.layers.1.final_layernorm.", "mtp.norm."),
)
SIZES = {
    "heads": "mamba_num_heads",
    "width": "mamba_head_dim",
    "groups": "n_groups",
    "state": "ssm_state_size",
    "kernel": "conv_kernel",
}


def read_config(raw: RawConfig) -> ModelConfig:
    """Raises :class:`CheckpointError` for layers of an unknown kind."""
    kinds = _kinds(raw)
    raw = RawConfig(raw.values | {"num_hidden_layers": len(kinds)}, raw.file)
    raw.activation("mamba_hidden_act", ("silu",))
    return read_decoder(
        raw,
        head_dim=raw.integer("attention_head_dim", 128),
        rms_norm_eps=raw.number("layer_norm_epsilon", 1e-5),
        intermediate_size=raw.integer("intermediate_size", 21504),
        max_position=raw.integer("max_position_embeddings", 4096),
        activation=raw.activation("mlp_hidden_act", ("relu2", "silu", "relu")),
        mlp_bias=raw.flag("mlp_bias", False),
        rotary=(False,) * len(kinds),
        recurrent=_states(raw, kinds),
        mlp_only=tuple(kind in (MLP, EXPERTS) for kind in kinds),
        moe=_experts(raw, kinds) if EXPERTS in kinds else None,
    )


def _kinds(raw: RawConfig) -> list[str]:
    key = "layers_block_type" if raw.values.get("layers_block_type") is not None else "hybrid_override_pattern"
    stated = raw.values.get(key)
    if not isinstance(stated, str | list) or not 0 < len(stated) <= 10_000:
        raise raw.wrong(f'"{key}" does not say of what kind each layer is')
    for kind in stated:
        if kind not in (*KINDS, *OTHERS):
            raise raw.wrong(f"its layer type {kind!r:.100} is not one that Kvasir knows")
    return [OTHERS.get(kind, kind) for kind in stated]


def _states(raw: RawConfig, kinds: list[str]) -> MambaShape | None:
    states = [kind == STATE for kind in kinds]
    own = {"convolution_bias": raw.flag("use_conv_bias", True), "bias": raw.flag("use_bias", False)}
    return some_states(raw, read_mamba(raw, states, SIZES, **own), attending=ATTENTION in kinds)


def _experts(raw: RawConfig, kinds: list[str]) -> MoEConfig:
    """Experts as those of DeepSeek-V3, without gates."""
    groups = raw.optional_integer("n_group", 1) or 1
    if groups > 1 and raw.integer("n_routed_experts", 8) < 2 * groups:
        raise raw.wrong(f"{groups} groups of {raw.integer('n_routed_experts', 8)} experts have no two best ones each")
    return read_moe(
        raw,
        count="n_routed_experts",
        per_token=2,
        intermediate_size=raw.integer("moe_intermediate_size"),
        sparse=tuple(kind == EXPERTS for kind in kinds),
        routing="sigmoid",
        choice_bias=True,
        normalised=raw.flag("norm_topk_prob", True),
        share_scale=raw.positive("routed_scaling_factor", 1.0),
        groups=groups,
        groups_per_token=raw.optional_integer("topk_group", 1) or 1 if groups > 1 else 1,
        shared_size=raw.integer("moe_shared_expert_intermediate_size"),
        latent_size=raw.optional_integer("moe_latent_size") or 0,
        names=ExpertNames(experts=("up_proj", "down_proj")),
    )


class NemotronHLayer:
    """Norm and one block, which adds to the residual stream."""

    block: Mamba2 | Attention | SparseMLP | PlainMLP

    def __init__(self, config: ModelConfig, index: int, source: WeightSource) -> None:
        name = f"model.layers.{index}."
        self.norm, prefix = read_norm(config, source, f"{name}norm.weight"), f"{name}mixer."
        if config.recurrent is not None and config.recurrent.layers[index]:
            self.block = Mamba2(config, index, source, prefix)
        elif not config.mlp.only[index]:
            self.block = Attention(config, index, source, prefix)
        elif config.moe is not None and config.moe.sparse[index]:
            self.block = SparseMLP(config, source, prefix)
        else:
            self.block = PlainMLP(config, source, prefix)

    def forward(self, stream: ResidualStream, step: Step) -> None:
        """Add what this layer computes."""
        x = stream.normed(self.norm)
        if isinstance(self.block, Mamba2 | Attention):
            stream.add(self.block.forward(x, step))
        else:
            stream.add(self.block.forward(x))

    def replay(self, states: StateStore, rows: Tensor, runs: StateRuns) -> None:
        """Implements :meth:`DecoderLayer.replay`."""
        if isinstance(self.block, Mamba2):
            self.block.replay(states, rows, runs)

    def linears(self) -> Iterator[tuple[str, Linear]]:
        yield from self.block.linears()

    def storage_size(self) -> int:
        return self.norm.storage_size() + self.block.storage_size()

    @property
    def plans(self) -> bool:
        return isinstance(self.block, Mamba2) and self.block.plans

    @property
    def waits(self) -> bool:
        return isinstance(self.block, SparseMLP) and self.block.waits


class Model(Decoder):
    layer = NemotronHLayer
