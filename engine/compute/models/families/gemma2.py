"""Gemma 2: norms before and after every block, capped scores and logits, a window in every second layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine.compute.batch import Batch
from engine.compute.layers.interface import Step, WeightSource
from engine.compute.layers.norm import read_norm
from engine.compute.layers.residual import ResidualStream
from engine.compute.models.common import read_decoder
from engine.compute.models.decoder import Decoder, PreNormLayer
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig


def read_config(raw: RawConfig) -> ModelConfig:
    """Scores are capped at 50 and logits at 30 where the file is silent; the first layer has a window."""
    if raw.flag("use_bidirectional_attention", False):
        raise raw.wrong("its tokens see those after them, and Kvasir generates text from left to right only")
    return read_gemma(raw, pattern=2, softcap=raw.softcap("attn_logit_softcapping", 50.0), logit_softcap=30.0)


def read_gemma(
    raw: RawConfig, *, pattern: int, softcap: float | None, logit_softcap: float | None, **own: Any
) -> ModelConfig:
    """Read what Gemma 2 and 3 share. Where the file has no ``layer_types``, every ``pattern``-th layer sees all."""
    layers = raw.integer("num_hidden_layers", most=10_000)
    window = raw.optional_integer("sliding_window", 4096)
    if own.get("bidirectional") and window is not None:
        window = window // 2 + 1  # half of it lies before a token, and half after
    return read_decoder(
        raw,
        head_dim=256,
        activation=raw.activation("hidden_activation", ("gelu_tanh", "gelu")),
        windows=tuple(window if local else None for local in local_layers(raw, layers, pattern)),
        tie_word_embeddings=raw.flag("tie_word_embeddings", True),
        attention_bias=raw.flag("attention_bias", False),
        unit_offset_norms=True,
        attention_scale=raw.positive("query_pre_attn_scalar", 256) ** -0.5,
        attention_softcap=softcap,
        logit_softcap=raw.softcap("final_logit_softcapping", logit_softcap),
        **own,
    )


def local_layers(raw: RawConfig, layers: int, pattern: int) -> tuple[bool, ...]:
    """Return, for each layer, True if it has a window."""
    types = raw.layer_types(layers)
    if types is None:
        return tuple((index + 1) % pattern != 0 for index in range(layers))
    return tuple(kind == "sliding_attention" for kind in types)


class SandwichLayer(PreNormLayer):
    """Each block's result is normalised once more before it adds to the residual stream."""

    norm_names = ("input_layernorm", "pre_feedforward_layernorm")

    def __init__(self, config: ModelConfig, index: int, source: WeightSource) -> None:
        super().__init__(config, index, source)
        prefix = f"model.layers.{index}."
        self.attention_out_norm = read_norm(config, source, f"{prefix}post_attention_layernorm.weight")
        self.mlp_out_norm = read_norm(config, source, f"{prefix}post_feedforward_layernorm.weight")

    def forward(self, stream: ResidualStream, step: Step) -> None:
        """Add what this layer computes."""
        attended = self.attention.forward(stream.normed(self.attention_norm), step)
        stream.add(self.attention_out_norm.forward(attended))
        stream.add(self.mlp_out_norm.forward(self.mlp.forward(stream.normed(self.mlp_norm))))

    def storage_size(self) -> int:
        return super().storage_size() + self.attention_out_norm.storage_size() + self.mlp_out_norm.storage_size()


class Model(Decoder):
    """Gemma 2 (Gemma Team 2024)."""

    layer = SandwichLayer

    def __init__(self, config: ModelConfig, source: WeightSource) -> None:
        super().__init__(config, source)
        # The root is rounded to the model's dtype before it multiplies: in bfloat16, 55.5 for a hidden size of 3072.
        self.root = torch.tensor(config.hidden_size**0.5, device=self.device).to(self.dtype)

    def embed(self, batch: Batch) -> Tensor:
        """The looked up rows times the root of the hidden size ``[T, hidden_size]``."""
        return super().embed(batch).mul_(self.root)
