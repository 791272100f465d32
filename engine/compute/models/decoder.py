"""The decoder that Llama and its kin share: pre-norm layers of grouped-query attention and a gated MLP."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from engine.cache.stores.states import StateRuns, StateStore
from engine.compute.layers.attention import Attention
from engine.compute.layers.embedding import token_table
from engine.compute.layers.interface import Norm, Rotary, Step, WeightSource
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.longrope import LongRotaryEmbedding
from engine.compute.layers.mla import LatentAttention
from engine.compute.layers.mlp import GatedMLP
from engine.compute.layers.moe import SparseMLP, feed_forward
from engine.compute.layers.norm import read_norm
from engine.compute.layers.plain_mlp import PlainMLP
from engine.compute.layers.recurrent.gated_delta_net import GatedDeltaNet
from engine.compute.layers.recurrent.mamba import Mamba2
from engine.compute.layers.recurrent.short_convolution import ShortConvolution
from engine.compute.layers.residual import ResidualStream
from engine.compute.layers.rotary import RotaryEmbedding
from engine.compute.models.base import CausalLM, DecoderLayer
from engine.config.model import ModelConfig
from engine.config.positions import RopeConfig
from engine.config.states import ConvolutionShape, MambaShape, RecurrentShape, StateShape

StateBlock = GatedDeltaNet | Mamba2 | ShortConvolution
STATE_BLOCKS: dict[type[StateShape], tuple[type[StateBlock], str]] = {
    RecurrentShape: (GatedDeltaNet, "linear_attn"),
    ConvolutionShape: (ShortConvolution, "conv"),
    MambaShape: (Mamba2, "mamba"),
}
"""Blocks in place of attention, and what checkpoints call them within a layer."""


class PreNormLayer:
    """Norm, attention, norm, MLP (or experts); each block adds to the residual stream."""

    attention: Attention | LatentAttention | StateBlock
    attention_kind: type[Attention] | type[LatentAttention] = Attention
    state_block: tuple[type[StateBlock], str] | None = None
    """The block of layers with states and its name, where :data:`STATE_BLOCKS` does not say it."""
    norm_names = ("input_layernorm", "post_attention_layernorm")
    """Names of the norms of attention and MLP in the checkpoint."""
    mlp: GatedMLP | SparseMLP | PlainMLP
    attention_norm: Norm
    mlp_norm: Norm
    scale = 1.0
    """Factor on what a block adds."""

    def __init__(self, config: ModelConfig, index: int, source: WeightSource) -> None:
        prefix = f"model.layers.{index}."
        states = config.recurrent
        if states is None or not states.layers[index]:
            self.attention = self.attention_kind(config, index, source, f"{prefix}self_attn.")
        else:
            block, name = self.state_block or STATE_BLOCKS[type(states)]
            self.attention = block(config, index, source, f"{prefix}{name}.")
        self.mlp = feed_forward(config, index, source, prefix)
        self.attention_norm, self.mlp_norm = (
            read_norm(config, source, f"{prefix}{name}.weight") for name in self.norm_names
        )
        self.scale = config.scales.residual

    def forward(self, stream: ResidualStream, step: Step) -> None:
        """Add what this layer computes."""
        if isinstance(self.attention, Attention | GatedDeltaNet):
            self.attention.add_to(stream, self.attention_norm, step, self.scale)
        else:
            stream.add(self.attention.forward(stream.normed(self.attention_norm), step), self.scale)
        if isinstance(self.mlp, PlainMLP):
            stream.add(self.mlp.forward(stream.normed(self.mlp_norm)), self.scale)
        else:
            self.mlp.add_to(stream, self.mlp_norm, self.scale)

    def replay(self, states: StateStore, rows: Tensor, runs: StateRuns) -> None:
        """Implements :meth:`DecoderLayer.replay`."""
        if isinstance(self.attention, StateBlock):
            self.attention.replay(states, rows, runs)

    def linears(self) -> Iterator[tuple[str, Linear]]:
        yield from self.attention.linears()
        yield from self.mlp.linears()

    def storage_size(self) -> int:
        parts = (self.attention, self.mlp, self.attention_norm, self.mlp_norm)
        return sum(part.storage_size() for part in parts)

    @property
    def plans(self) -> bool:
        return isinstance(self.attention, StateBlock) and self.attention.plans

    @property
    def waits(self) -> bool:
        return isinstance(self.mlp, SparseMLP) and self.mlp.waits


class Decoder(CausalLM):
    """Token table, layers, norm, head. What sets its families apart stands in the :class:`ModelConfig`.

    A family whose layers have another shape gives its own ``layer``.
    """

    layer: type[DecoderLayer] = PreNormLayer

    def __init__(self, config: ModelConfig, source: WeightSource) -> None:
        super().__init__(config, source)
        table = source.embedding("model.embed_tokens.weight", config.vocab_size, config.hidden_size)
        self.embedding = token_table(table)
        # Before the layers: where the head takes the table over, both are held for a moment.
        self.head = source.head(table if config.tie_word_embeddings else None, config.vocab_size, config.hidden_size)
        self.layers = [self.layer(config, index, source) for index in range(config.num_layers)]
        self.norm = read_norm(config, source, "model.norm.weight")
        positions = config.positions
        self.rotaries = [self._rotary(positions.rope, config.rotated_dim())]
        if positions.local_rope is not None:
            self.rotaries.append(self._rotary(positions.local_rope, config.rotated_dim(local=True)))

    def _rotary(self, rope: RopeConfig, width: int) -> Rotary:
        two_sets = rope.kind == "longrope" and rope.factors != rope.long_factors
        kind = LongRotaryEmbedding if two_sets else RotaryEmbedding
        return kind(rope, width, self.config.positions.max_position, self.dtype, self.device)
