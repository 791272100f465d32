"""OPT: learned positions, LayerNorm, biases everywhere and a plain MLP."""

from __future__ import annotations

from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.batch import Batch
from engine.compute.layers.attention import Attention
from engine.compute.layers.embedding import token_table
from engine.compute.layers.interface import WeightSource
from engine.compute.layers.layer_norm import read_layer_norm
from engine.compute.layers.plain_mlp import PlainMLP
from engine.compute.models.base import CausalLM
from engine.compute.models.decoder import PreNormLayer
from engine.config.attention import AttentionConfig
from engine.config.feed_forward import MLPConfig
from engine.config.model import ModelConfig
from engine.config.positions import PositionConfig, RopeConfig
from engine.config.raw import RawConfig

POSITION_OFFSET = 2
"""The row of the position table that belongs to position 0."""


def read_config(raw: RawConfig) -> ModelConfig:
    """Raises :class:`CheckpointError` for OPT-350m, which normalises after its blocks and projects its tokens."""
    hidden, heads = raw.integer("hidden_size"), raw.integer("num_attention_heads")
    layers = raw.integer("num_hidden_layers", most=10_000)
    raw.per_layer(layers)
    if hidden % heads:
        raise raw.wrong(f"a hidden size of {hidden} does not divide into {heads} heads")
    if not raw.flag("do_layer_norm_before", True):
        raise _refused("normalises after its blocks (as OPT-350m does)")
    if raw.integer("word_embed_proj_dim", hidden) != hidden:
        raise _refused("has token embeddings of another size than its layers (as OPT-350m does)")
    if raw.flag("_remove_final_layer_norm", False) or not raw.flag("layer_norm_elementwise_affine", True):
        raise _refused("lacks its last norm, or its norms have no weights")
    bias = raw.flag("enable_bias", True)
    return ModelConfig(
        architecture=raw.architecture,
        vocab_size=raw.integer("vocab_size"),
        hidden_size=hidden,
        num_layers=layers,
        attention=AttentionConfig(heads, heads, hidden // heads, (None,) * layers, qkv_bias=bias, output_bias=bias),
        positions=PositionConfig(
            RopeConfig(10000.0), raw.integer("max_position_embeddings", 2048), (False,) * layers, learned=True
        ),
        mlp=MLPConfig(
            raw.integer("ffn_dim"), bias=bias, activation=raw.activation("activation_function", ("relu", "gelu"))
        ),
        rms_norm_eps=1e-5,
        tie_word_embeddings=raw.flag("tie_word_embeddings", True),
        dtype=raw.dtype(),
    )


def _refused(what: str) -> CheckpointError:
    return CheckpointError(f"This OPT model {what}, which Kvasir does not have. Choose another size of the model.")


class OPTLayer(PreNormLayer):
    """LayerNorm, attention, LayerNorm, MLP; each block adds to the residual stream."""

    def __init__(self, config: ModelConfig, index: int, source: WeightSource) -> None:
        prefix = f"model.decoder.layers.{index}."
        self.attention = Attention(config, index, source, f"{prefix}self_attn.", output="out_proj")
        self.mlp = PlainMLP(config, source, prefix, "fc1", "fc2")
        self.attention_norm = read_layer_norm(config, source, f"{prefix}self_attn_layer_norm")
        self.mlp_norm = read_layer_norm(config, source, f"{prefix}final_layer_norm")


class Model(CausalLM):
    """OPT (Zhang et al. 2022)."""

    def __init__(self, config: ModelConfig, source: WeightSource) -> None:
        super().__init__(config, source)
        table = source.embedding("model.decoder.embed_tokens.weight", config.vocab_size, config.hidden_size)
        self.embedding = token_table(table)
        rows = config.positions.max_position + POSITION_OFFSET
        positions = source.embedding("model.decoder.embed_positions.weight", rows, config.hidden_size)
        self.positions = token_table(positions)
        self.layers = [OPTLayer(config, index, source) for index in range(config.num_layers)]
        self.norm = read_layer_norm(config, source, "model.decoder.final_layer_norm")
        self.head = source.head(table if config.tie_word_embeddings else None, config.vocab_size, config.hidden_size)
        self.rotaries = ()

    def embed(self, batch: Batch) -> Tensor:
        """The rows of the tokens plus those of their positions ``[T, hidden_size]``.

        Positions after the end of the table use its last row: a draft model may run past its own context, which affects
        its draft tokens only.
        """
        last = self.config.positions.max_position - 1
        return super().embed(batch).add_(self.positions.forward(batch.positions.clamp(max=last) + POSITION_OFFSET))

    def storage_size(self) -> int:
        """Bytes of weights held, the position table's included."""
        return super().storage_size() + self.positions.storage_size()
