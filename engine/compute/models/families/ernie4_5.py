"""ERNIE 4.5 (Baidu 2025), dense and with experts: Llama whose pairs of neighbours rotate; experts chosen with a bias.

Multi-token layers are left out.
"""

from __future__ import annotations

from torch import Tensor

from engine.compute.layers.attention import Attention
from engine.compute.layers.rotary import halves_of_pairs
from engine.compute.models.common import read_decoder, read_moe
from engine.compute.models.decoder import Decoder, PreNormLayer
from engine.config.feed_forward import MoEConfig
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig

NAMES = ((".mlp.moe_statics.", ".mlp.gate."), (".mlp.gate.moe_statics.", ".mlp.gate."))


def read_config(raw: RawConfig) -> ModelConfig:
    """One switch for all biases."""
    bias = raw.flag("use_bias", False)
    experts = "Moe" in raw.architecture
    return read_decoder(
        raw,
        head_dim=None if experts else 128,
        theta=500_000.0,
        eps=1e-5,
        attention_bias=bias,
        mlp_bias=bias,
        max_position=raw.integer("max_position_embeddings", 131_072),
        tie_word_embeddings=raw.flag("tie_word_embeddings", True),
        moe=_experts(raw) if experts else None,
    )


def _experts(raw: RawConfig) -> MoEConfig | None:
    """Every ``moe_layer_interval``-th layer from one to another; None where that is no layer."""
    layers, inner = raw.integer("num_hidden_layers", most=10_000), raw.integer("moe_intermediate_size", 1536)
    first, every = raw.integer("moe_layer_start_index", 1, least=0), raw.integer("moe_layer_interval", 1)
    last = raw.integer("moe_layer_end_index", -1, least=-1)
    last = layers - 1 if last == -1 else last
    sparse = tuple(first <= index <= last and (index + 1) % every == 0 for index in range(layers))
    if not any(sparse):
        return None
    return read_moe(
        raw,
        count="moe_num_experts",
        asked="moe_k",
        per_token=6,
        intermediate_size=inner,
        sparse=sparse,
        choice_bias=True,
        normalised=True,
        shared_size=inner * raw.integer("moe_num_shared_experts", 2, least=0),
    )


class PairedAttention(Attention):
    """Attention whose rotation turns neighbours, not halves, of a head."""

    def heads_apart(self, qkv: Tensor) -> tuple[Tensor, Tensor | None]:
        """Same as :meth:`Attention.heads_apart`, with queries and keys in halves (:func:`halves_of_pairs`)."""
        qk, v = super().heads_apart(qkv)
        return halves_of_pairs(qk), v


class Ernie45Layer(PreNormLayer):
    attention_kind = PairedAttention


class Model(Decoder):
    layer = Ernie45Layer
