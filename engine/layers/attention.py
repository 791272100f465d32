"""The attention block that the Llama-shaped families share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.attention.interface import AttnSpec
from engine.layers.linear.base import Linear
from engine.layers.norm import RMSNorm
from engine.layers.rotary import rotate

if TYPE_CHECKING:
    from engine.models.base import ModelConfig, Step, WeightSource


class Attention:
    """Grouped-query attention: fused q, k, v; optional norm of q and k per head; rotation; paged keys; output."""

    def __init__(self, config: ModelConfig, index: int, source: WeightSource, prefix: str) -> None:
        """``prefix`` names the block in the checkpoint, such as ``model.layers.0.self_attn.``."""
        self.index = index
        self.heads, self.kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        self.spec = AttnSpec(scale=config.head_dim**-0.5, window=config.windows[index])
        self.rotary = config.rotary[index]
        sizes = [heads * self.head_dim for heads in (self.heads, self.kv_heads, self.kv_heads)]
        self.qkv: Linear = source.linear(
            prefix, ("q_proj", "k_proj", "v_proj"), sizes, config.hidden_size, config.qkv_bias
        )
        self.output: Linear = source.linear(prefix, ("o_proj",), [config.hidden_size], sizes[0], config.output_bias)
        self.norm: RMSNorm | None = None
        if config.qk_norm:
            q = source.vector(f"{prefix}q_norm.weight", self.head_dim)
            k = source.vector(f"{prefix}k_norm.weight", self.head_dim)
            weight = torch.cat((q.expand(self.heads, -1), k.expand(self.kv_heads, -1)))
            self.norm = RMSNorm(weight, config.rms_norm_eps, source.numerics)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """``x [T, hidden_size]``, already normalised -> what the block adds to the residual stream."""
        batch = step.batch
        qkv = self.qkv(x).view(-1, self.heads + 2 * self.kv_heads, self.head_dim)
        qk, v = qkv.split((self.heads + self.kv_heads, self.kv_heads), 1)
        if self.norm is not None:
            qk = self.norm.forward(qk)
        if self.rotary:
            qk = rotate(qk, step.rope)
        q, k = qk.split((self.heads, self.kv_heads), 1)
        step.kv.write(self.index, batch.slots[0], k, v, batch.host.first_slot[0])
        out, _ = step.attention.attend(q, step.kv.view(self.index), self.spec, batch, 0)
        return self.output(out.reshape(x.shape[0], -1))

    def linears(self) -> Iterator[tuple[str, Linear]]:
        yield "qkv", self.qkv
        yield "output", self.output

    def storage_size(self) -> int:
        """Bytes held besides the linear layers."""
        return self.norm.storage_size() if self.norm is not None else 0
