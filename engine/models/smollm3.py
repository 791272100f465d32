"""SmolLM3: Llama whose every fourth layer has no position embedding."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from engine.checkpoints.config import RawConfig
from engine.layers.attention import Attention
from engine.layers.embedding import Embedding
from engine.layers.linear.base import Linear
from engine.layers.mlp import GatedMLP
from engine.layers.norm import RMSNorm
from engine.layers.rotary import RotaryEmbedding
from engine.models.base import CausalLM, ModelConfig, Step, WeightSource
from engine.models.common import read_decoder


def read_config(raw: RawConfig) -> ModelConfig:
    """``no_rope_layers`` says 1 where a layer rotates; a window only where a layer does not."""
    layers = raw.integer("num_hidden_layers", most=10_000)
    every = raw.integer("no_rope_layer_interval", 4)
    stated = raw.values.get("no_rope_layers") or [int((index + 1) % every != 0) for index in range(layers)]
    if not isinstance(stated, list) or len(stated) < layers:
        raise raw.wrong(f'"no_rope_layers" does not have one entry for each of the {layers} layers')
    rotary = tuple(bool(value) for value in stated[:layers])
    window = raw.optional_integer("sliding_window") if raw.flag("use_sliding_window", False) else None
    types = raw.layer_types(layers) or ["full_attention" if rotates else "sliding_attention" for rotates in rotary]
    bias = raw.flag("attention_bias", False)
    return read_decoder(
        raw,
        theta=2000000.0,
        rotary=rotary,
        windows=tuple(window if kind == "sliding_attention" else None for kind in types),
        tie_word_embeddings=raw.flag("tie_word_embeddings", True),
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=raw.flag("mlp_bias", False),
    )


class SmolLM3Layer:
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


class Model(CausalLM):
    """SmolLM3 (Hugging Face 2025; layers without rotation after Yang et al. 2025, "RoPE to NoPE and back")."""

    def __init__(self, config: ModelConfig, source: WeightSource) -> None:
        super().__init__(config, source)
        table = source.embedding("model.embed_tokens.weight", config.vocab_size, config.hidden_size)
        self.embedding = Embedding(table)
        self.layers = [SmolLM3Layer(config, index, source) for index in range(config.num_layers)]
        self.norm = RMSNorm(
            source.vector("model.norm.weight", config.hidden_size), config.rms_norm_eps, source.numerics
        )
        self.head = source.head(table if config.tie_word_embeddings else None, config.vocab_size, config.hidden_size)
        self.rotary = RotaryEmbedding(config.rope, config.head_dim, config.max_position, source.dtype, source.device)
