"""OLMo 2: each block's result is normalised, not its input, and so are q and k, over all their heads together."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.compute.layers.attention import Attention
from engine.compute.layers.interface import Step, WeightSource
from engine.compute.layers.norm import RMSNorm
from engine.compute.layers.residual import ResidualStream
from engine.compute.models.common import read_decoder
from engine.compute.models.decoder import Decoder, PreNormLayer
from engine.config.model import ModelConfig
from engine.config.raw import RawConfig


def read_config(raw: RawConfig) -> ModelConfig:
    """Biases where the file asks for them. ``qk_norm`` stays False: it means a norm of each head by itself."""
    return read_decoder(raw, eps=1e-5, attention_bias=raw.flag("attention_bias", False))


class WholeNormAttention(Attention):
    """Attention whose q and k are normalised over the whole projection."""

    def __init__(self, config: ModelConfig, index: int, source: WeightSource, prefix: str) -> None:
        super().__init__(config, index, source, prefix)
        self.q_norm, self.k_norm = (
            RMSNorm(source.vector(f"{prefix}{name}.weight", size), config.rms_norm_eps, source.numerics)
            for name, size in (("q_norm", self.heads * self.head_dim), ("k_norm", self.kv_heads * self.head_dim))
        )

    def normalise(self, qk: Tensor) -> Tensor:
        """``qk [T, heads + kv_heads, head_dim]`` -> the same shape."""
        q, k = qk.split((self.heads, self.kv_heads), 1)
        return torch.cat((self.q_norm.forward(q.flatten(1)), self.k_norm.forward(k.flatten(1))), 1).view(qk.shape)

    def storage_size(self) -> int:
        return self.q_norm.storage_size() + self.k_norm.storage_size()


class PostNormLayer(PreNormLayer):
    """Attention, norm, MLP, norm; the normalised results add to the residual stream."""

    attention_kind = WholeNormAttention
    norm_names = ("post_attention_layernorm", "post_feedforward_layernorm")

    def forward(self, stream: ResidualStream, step: Step) -> None:
        """Add what this layer computes."""
        stream.add(self.attention_norm.forward(self.attention.forward(stream.value(), step)))
        stream.add(self.mlp_norm.forward(self.mlp.forward(stream.value())))


class Model(Decoder):
    """OLMo 2 (OLMo Team 2024)."""

    layer = PostNormLayer
