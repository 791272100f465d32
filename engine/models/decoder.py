"""The decoder that Llama and its kin share: pre-norm layers of grouped-query attention and a gated MLP."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from engine.layers.attention import Attention
from engine.layers.embedding import Embedding
from engine.layers.linear.base import Linear
from engine.layers.mlp import GatedMLP
from engine.layers.norm import RMSNorm
from engine.layers.rotary import RotaryEmbedding
from engine.models.base import CausalLM, ModelConfig, Step, WeightSource


class PreNormLayer:
    """Norm, attention, norm, MLP; each block adds to the residual stream."""

    def __init__(self, config: ModelConfig, index: int, source: WeightSource) -> None:
        prefix = f"model.layers.{index}."
        self.attention = Attention(config, index, source, f"{prefix}self_attn.")
        self.mlp = GatedMLP(config, source, f"{prefix}mlp.")
        self.attention_norm = RMSNorm(
            source.vector(f"{prefix}input_layernorm.weight", config.hidden_size), config.rms_norm_eps, source.numerics
        )
        self.mlp_norm = RMSNorm(
            source.vector(f"{prefix}post_attention_layernorm.weight", config.hidden_size),
            config.rms_norm_eps,
            source.numerics,
        )

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """``x [T, hidden_size]`` -> the stream after this layer (``x`` itself, changed)."""
        x += self.attention.forward(self.attention_norm.forward(x), step)
        x += self.mlp.forward(self.mlp_norm.forward(x))
        return x

    def linears(self) -> Iterator[tuple[str, Linear]]:
        yield from self.attention.linears()
        yield from self.mlp.linears()

    def storage_size(self) -> int:
        return self.attention.storage_size() + self.attention_norm.storage_size() + self.mlp_norm.storage_size()


class Decoder(CausalLM):
    """Token table, pre-norm layers, norm, head. What sets its families apart stands in the :class:`ModelConfig`."""

    def __init__(self, config: ModelConfig, source: WeightSource) -> None:
        super().__init__(config, source)
        table = source.embedding("model.embed_tokens.weight", config.vocab_size, config.hidden_size)
        self.embedding = Embedding(table)
        self.layers = [PreNormLayer(config, index, source) for index in range(config.num_layers)]
        self.norm = RMSNorm(
            source.vector("model.norm.weight", config.hidden_size), config.rms_norm_eps, source.numerics
        )
        self.head = source.head(table if config.tie_word_embeddings else None, config.vocab_size, config.hidden_size)
        self.rotary = RotaryEmbedding(config.rope, config.head_dim, config.max_position, source.dtype, source.device)
