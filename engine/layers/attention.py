"""The attention block that the Llama-shaped families share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.attention.interface import AttnSpec
from engine.attention.rotation import RotaryStep, rotate
from engine.attention.writing import write_rotated
from engine.layers.linear.base import Linear
from engine.layers.norm import RMSNorm, norm_weight

if TYPE_CHECKING:
    from engine.layers.interface import Step, WeightSource
    from engine.model_config.model import ModelConfig


class Attention:
    """Grouped-query attention: fused q, k, v; optional norm of q and k per head; rotation; paged keys; output."""

    def __init__(
        self,
        config: ModelConfig,
        index: int,
        source: WeightSource,
        prefix: str,
        output: str = "o_proj",
        in_features: int | None = None,
    ) -> None:
        """``prefix`` names the block in the checkpoint (``model.layers.0.self_attn.``), ``output`` its last layer.

        ``in_features`` is what q, k and v read where that is not the residual stream (EAGLE-3).
        """
        self.index = index
        self.heads, self.kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        scale = config.head_dim**-0.5 if config.attention_scale is None else config.attention_scale
        self.spec = AttnSpec(scale, config.windows[index], config.attention_softcap)
        self.rotary = config.rotary[index]
        self.rope = int(bool(config.local) and config.local[index])
        sizes = [heads * self.head_dim for heads in (self.heads, self.kv_heads, self.kv_heads)]
        names, parts = (("qkv_proj",), [sum(sizes)]) if config.fused else (("q_proj", "k_proj", "v_proj"), sizes)
        self.qkv: Linear = source.linear(prefix, names, parts, in_features or config.hidden_size, config.qkv_bias)
        self.output: Linear = source.linear(prefix, (output,), [config.hidden_size], sizes[0], config.output_bias)
        self.norm: RMSNorm | None = None
        if config.qk_norm:
            q = norm_weight(config, source, f"{prefix}q_norm.weight", self.head_dim)
            k = norm_weight(config, source, f"{prefix}k_norm.weight", self.head_dim)
            weight = torch.cat((q.expand(self.heads, -1), k.expand(self.kv_heads, -1)))
            self.norm = RMSNorm(weight, config.rms_norm_eps, source.numerics)
        self.numerics = source.numerics
        self.sinks = source.vector(f"{prefix}sinks", self.heads).float() if config.sinks else None

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """``x [T, in_features]``, already normalised -> what the block adds to the residual stream."""
        batch = step.batch
        qkv = self.qkv(x).view(-1, self.heads + 2 * self.kv_heads, self.head_dim)
        qk, v = qkv.split((self.heads + self.kv_heads, self.kv_heads), 1)
        qk = self.normalise(qk)
        sink_q = None if step.sink_ropes is None else self.turned(qk[:, : self.heads], step.sink_ropes)
        rope = step.ropes[self.rope] if self.rotary else None
        q = write_rotated(step.kv, self.index, qk, self.heads, v, rope, batch.placement)
        need_lse = self.sinks is not None
        kv = step.kv.view(self.index)
        out, lse = step.attention.attend(q, kv, self.spec, batch, 0, need_lse, sink_q=sink_q)
        if self.sinks is not None and lse is not None:
            out = self.with_sinks(out, lse, self.sinks)
        return self.output(out.reshape(x.shape[0], -1))

    def turned(self, x: Tensor, ropes: tuple[RotaryStep, ...]) -> Tensor:
        """Heads ``[T, heads, head_dim]``, rotated where this layer rotates."""
        return rotate(x, ropes[self.rope]) if self.rotary else x

    def normalise(self, qk: Tensor) -> Tensor:
        """``qk [T, heads + kv_heads, head_dim]`` -> the same shape, each head normalised where the family does so."""
        return qk if self.norm is None else self.norm.forward(qk)

    def with_sinks(self, out: Tensor, lse: Tensor, sinks: Tensor) -> Tensor:
        """``out [T, heads, head_dim]`` over the keys alone, and its lse -> over the keys and ``sinks [heads]``.

        A sink is the part (0, s) of a merge (engine/attention/interface.py), which leaves ``out * sigmoid(lse - s)``.
        """
        share = self.numerics.by_row(torch.sigmoid, lse - sinks)
        return (out * share[..., None]).to(out.dtype)

    def linears(self) -> Iterator[tuple[str, Linear]]:
        yield "qkv", self.qkv
        yield "output", self.output

    def storage_size(self) -> int:
        """Bytes held besides the linear layers."""
        sinks = 0 if self.sinks is None else self.sinks.nbytes
        return sinks + (self.norm.storage_size() if self.norm is not None else 0)
