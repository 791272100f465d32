"""The attention block that the Llama-shaped families share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.compute.attention.interface import AttnSpec
from engine.compute.attention.rotation import RotaryStep, rotate
from engine.compute.attention.writing import write_rotated
from engine.compute.layers.hadamard import Hadamard
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.norm import RMSNorm, norm_weight
from engine.compute.layers.residual import ResidualStream

if TYPE_CHECKING:
    from engine.compute.layers.interface import Norm, Step, WeightSource
    from engine.config.model import ModelConfig


class Attention:
    """Grouped-query attention: fused q, k, v; optional norm of q and k per head; rotation; paged keys; output."""

    reads_input = False
    """True if :meth:`opened` reads what the block reads."""

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

        ``in_features`` is what q, k and v read where that is not the residual stream.
        """
        own, positions = config.attention, config.positions
        self.place, self.heads = config.arena_of(index), own.num_heads
        self.kv_heads, self.head_dim = own.heads_of(index)
        self.shares = own.source_of(index) != index
        self.value_norm = own.value_norm
        self.keys_as_values = bool(own.keys_as_values) and own.keys_as_values[index]
        self.spec = AttnSpec(own.scale_of(index), own.windows[index], own.softcap)
        self.rotary = positions.rotary[index]
        self.rope = int(bool(positions.local) and positions.local[index])
        projected = 0 if self.shares else 1 if self.keys_as_values else 2
        sizes = [heads * self.head_dim for heads in (self.heads, *[self.kv_heads] * projected)]
        self.gated = own.output_gate
        wide, all_three = [sizes[0] * (1 + self.gated), *sizes[1:]], ("q_proj", "k_proj", "v_proj")
        names, parts = (("qkv_proj",), [sum(wide)]) if own.fused_qkv else (all_three[: 1 + projected], wide)
        self.qkv: Linear = source.linear(prefix, names, parts, in_features or config.hidden_size, own.qkv_bias)
        self.output: Linear = source.linear(prefix, (output,), [config.hidden_size], sizes[0], own.output_bias)
        self.norm: RMSNorm | None = None
        if own.qk_norm:
            weights = [norm_weight(config, source, f"{prefix}q_norm.weight", self.head_dim).expand(self.heads, -1)]
            if not self.shares:
                k = norm_weight(config, source, f"{prefix}k_norm.weight", self.head_dim).expand(self.kv_heads, -1)
                weights += [k, torch.ones_like(k)] if own.value_norm else [k]
            self.norm = RMSNorm(torch.cat(weights), config.rms_norm_eps, source.numerics)
        self.numerics = source.numerics
        self.mixed = Hadamard(self.head_dim, source.device, source.numerics)
        self.sinks = source.vector(f"{prefix}sinks", self.heads).float() if own.sinks else None

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """``x [T, in_features]``, already normalised -> what the block adds to the residual stream."""
        return self.output(self.attended(self.qkv(x), step, x))

    def add_to(self, stream: ResidualStream, norm: Norm, step: Step, scale: float) -> None:
        """Add ``scale`` times what the block makes of the norm of the stream."""
        if self.reads_input:
            stream.add(self.forward(stream.normed(norm), step), scale)
        else:
            stream.add_product(self.output, self.attended(stream.multiplied(norm, self.qkv), step), scale)

    def attended(self, qkv: Tensor, step: Step, x: Tensor | None = None) -> Tensor:
        """Queries, keys and values ``[T, *]`` -> what the output layer reads. ``x`` is what the block reads, where
        :attr:`reads_input`."""
        batch, gate = step.batch, None
        if self.gated:
            qkv, gate = self._gate_apart(qkv)
        qk, v = self.heads_apart(qkv)
        mixed = self.mixed if step.kv.hadamard else None
        sink_q = None if step.sink_ropes is None else self.turned(qk[:, : self.heads], step.sink_ropes, mixed)
        rope = step.ropes[self.rope] if self.rotary else None
        need_lse, found = self.sinks is not None, None
        if qk.is_cuda and v is not None and mixed is None and sink_q is None and step.query_scale is None:
            found = step.attention.attend_new(
                step.kv, self.place, qk, self.heads, v, rope, self.spec, batch, need_lse
            )  # fmt: skip
        if found is None:
            if v is None:
                q = self.turned(qk, step.ropes, mixed)
            else:
                q = write_rotated(step.kv, self.place, qk, self.heads, v, rope, batch.placement, mixed)
            if step.query_scale is not None:
                q = q * step.query_scale
                sink_q = None if sink_q is None else sink_q * step.query_scale
            kv, group = step.kv.view(self.place), step.kv.group_of(self.place)
            found = step.attention.attend(q, kv, self.spec, batch, group, need_lse, sink_q=sink_q)
        out, lse = found
        if self.sinks is not None and lse is not None:
            out = self.with_sinks(out, lse, self.sinks)
        return self.opened(out.reshape(qkv.shape[0], -1), gate, x)

    def opened(self, out: Tensor, gate: Tensor | None, x: Tensor | None) -> Tensor:
        """``out [T, heads * head_dim]`` times its gates; ``x`` is what the block reads, where :attr:`reads_input`."""
        return out if gate is None else out * self.numerics.by_row(torch.sigmoid, gate)

    def _gate_apart(self, qkv: Tensor) -> tuple[Tensor, Tensor]:
        """q, k and v ``[T, *]``, and the gate ``[T, heads * head_dim]``: each head's query and gate are neighbours."""
        width = self.heads * self.head_dim
        both, kv = qkv.split((2 * width, qkv.shape[1] - 2 * width), 1)
        q, gate = both.view(-1, self.heads, 2, self.head_dim).unbind(2)
        return torch.cat((q.flatten(1), kv), 1), gate.flatten(1)

    def turned(self, x: Tensor, ropes: tuple[RotaryStep, ...], mixed: Hadamard | None) -> Tensor:
        """Queries ``[T, heads, head_dim]``, rotated where this layer rotates, and mixed where keys are."""
        x = rotate(x, ropes[self.rope]) if self.rotary else x
        return x if mixed is None else mixed(x)

    def heads_apart(self, qkv: Tensor) -> tuple[Tensor, Tensor | None]:
        """Projections ``[T, *]`` -> queries and keys ``[T, heads + kv_heads, head_dim]`` and values, normalised.

        Queries alone, and None, in a layer that reads another's keys and values.
        """
        qkv = qkv.view(qkv.shape[0], -1, self.head_dim)
        if self.keys_as_values:
            qkv = torch.cat((qkv, qkv[:, self.heads :]), 1)
        if self.value_norm or self.shares:
            qkv = self.normalise(qkv)
        if self.shares:
            return qkv, None
        qk, v = qkv.split((self.heads + self.kv_heads, self.kv_heads), 1)
        return qk if self.value_norm else self.normalise(qk), v

    def normalise(self, x: Tensor) -> Tensor:
        """Heads ``[T, *, head_dim]`` -> the same shape, each normalised where the family does so."""
        return x if self.norm is None else self.norm.forward(x)

    def with_sinks(self, out: Tensor, lse: Tensor, sinks: Tensor) -> Tensor:
        """``out [T, heads, head_dim]`` over the keys alone, and its lse -> over the keys and ``sinks [heads]``.

        A sink is the part (0, s) of a merge (engine/compute/attention/interface.py), which leaves ``out * sigmoid(lse -
        s)``.
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
