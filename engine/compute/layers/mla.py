"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

A token leaves a latent c and one rotated key k_r, shared by all heads, in the cache. Head h has the keys
``[W_UK(h) c, k_r]`` and the values ``W_UV(h) c``. Two forms compute the same:

* expanded: project c to keys and values, then attend with ordinary heads;
* absorbed: project the query down instead, ``W_UK(h)^T q``, attend to ``[c, k_r]`` itself with values c, and apply
  ``W_UV(h)`` to the result. No key is ever projected, but each pair of query and key costs more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.cache.stores.packed import PackedKV
from engine.compute.attention.interface import AttnSpec
from engine.compute.attention.rotation import rotate
from engine.compute.batch import Batch
from engine.compute.layers import latent_forms
from engine.compute.layers.latent_forms import Expansion, FormPlanner
from engine.compute.layers.linear.base import Linear
from engine.compute.layers.linear.tiled import tiled_heads_matmul
from engine.compute.layers.norm import RMSNorm, norm_weight
from engine.compute.layers.rotary import halves_of_pairs

if TYPE_CHECKING:
    from engine.compute.layers.interface import Step, WeightSource
    from engine.config.model import ModelConfig

LATENT_EPS = 1e-6
"""Epsilon of the norms of latents, whatever that of the stream's norms is."""


class LatentAttention:
    """q (straight or through a latent), the latent of keys and values, both forms of attention, output."""

    def __init__(self, config: ModelConfig, index: int, source: WeightSource, prefix: str) -> None:
        """``prefix`` names the block in the checkpoint (``model.layers.0.self_attn.``)."""
        own, shape = config.attention, config.attention.latent
        assert shape is not None, "read_config gives it"
        self.shape, self.heads = shape, own.num_heads
        self.place = config.arena_of(index)
        self.numerics = source.numerics
        self.forms = FormPlanner(shape, source.numerics, source.dtype.itemsize)
        self.rotary = config.positions.rotary[index]
        self.spec = AttnSpec(own.scale_of(index), own.windows[index], own.softcap)
        q_size, latent_size = self.heads * own.head_dim, shape.rank + shape.rope
        self.q_up: Linear | None = None
        self.q_norm: RMSNorm | None = None
        down = ("q_proj", q_size) if shape.q_rank is None else ("q_a_proj", shape.q_rank)
        # Where q comes straight from the stream it has no bias, whatever the latent has: that one is found by name.
        bias = own.qkv_bias and shape.q_rank is not None
        names, self.sizes = (down[0], "kv_a_proj_with_mqa"), [down[1], latent_size]
        self.down: Linear = source.linear(prefix, names, self.sizes, config.hidden_size, bias)
        if shape.q_rank is not None:
            self.q_norm = self._norm(config, source, f"{prefix}q_a_layernorm.weight", shape.q_rank)
            self.q_up = source.linear(prefix, ("q_b_proj",), [q_size], shape.q_rank, False)
        self.norm = self._norm(config, source, f"{prefix}kv_a_layernorm.weight", shape.rank)
        # [H, value + nope, rank]: a head's values first, see _expanded.
        stored = source.matrix(f"{prefix}kv_b_proj", self.heads * (shape.nope + shape.value), shape.rank)
        k_up, v_up = stored.view(self.heads, -1, shape.rank).split((shape.nope, shape.value), 1)
        self.up = torch.cat((v_up, k_up), 1)
        values = self.heads * shape.value
        self.output: Linear = source.linear(prefix, ("o_proj",), [config.hidden_size], values, own.output_bias)

    @staticmethod
    def _norm(config: ModelConfig, source: WeightSource, name: str, size: int) -> RMSNorm:
        return RMSNorm(norm_weight(config, source, name, size), LATENT_EPS, source.numerics)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """``x [T, hidden_size]``, already normalised -> what the block adds to the residual stream."""
        batch, rank = step.batch, self.shape.rank
        q, latent = self._project(x, step)
        step.kv.write(self.place, latent, latent[..., :rank], batch.placement)
        kv, forms = step.kv.view(self.place), self.forms.plan(batch)
        if forms.expanded is None:
            out = self._absorbed(q, kv, batch, step)
        elif forms.absorbed is None and q.shape[0] == batch.host.T:
            out = self._expanded(q, kv, forms.expanded, step)
        else:
            out = q.new_zeros(q.shape[0], self.heads, self.shape.value)
            rows = forms.expanded.rows
            out.index_copy_(0, rows, self._expanded(q[rows], kv, forms.expanded, step))
            if forms.absorbed is not None:
                rows = forms.absorbed.rows
                out.index_copy_(0, rows, self._absorbed(q[rows], kv, forms.absorbed.batch, step))
        return self.output(out.reshape(x.shape[0], -1))

    def _project(self, x: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        """Queries ``[T, H, nope + rope]`` and what the cache keeps ``[T, 1, rank + rope]``, rotated if layers are."""
        shape = self.shape
        q, latent = self.down(x).split(self.sizes, 1)
        if self.q_norm is not None and self.q_up is not None:
            q = self.q_up(self.q_norm.forward(q))
        q = q.unflatten(1, (self.heads, -1))
        c, k_rope = latent.split((shape.rank, shape.rope), 1)
        c, k_rope = self.norm.forward(c)[:, None], k_rope[:, None]
        if not self.rotary:
            return q, torch.cat((c, k_rope), 2)
        q_nope, q_rope = q.split((shape.nope, shape.rope), 2)
        turned = rotate(halves_of_pairs(torch.cat((q_rope, k_rope), 1)), step.ropes[0])
        q_rope, k_rope = turned.split((self.heads, 1), 1)
        return torch.cat((q_nope, q_rope), 2), torch.cat((c, k_rope), 2)

    def _absorbed(self, q: Tensor, kv: PackedKV, batch: Batch, step: Step) -> Tensor:
        """``q [R, H, nope + rope]`` of a batch -> ``[R, H, value]``; every head reads the same latents."""
        shape = self.shape
        v_up, k_up = self.up.split((shape.value, shape.nope), 1)
        q_nope, q_rope = q.split((shape.nope, shape.rope), 2)
        down = torch.cat((self._per_head(q_nope, k_up), q_rope), 2)
        out, _ = step.attention.attend(down, kv, self.spec, batch, 0)
        return self._per_head(out, v_up.transpose(1, 2))

    def _expanded(self, q: Tensor, kv: PackedKV, part: Expansion, step: Step) -> Tensor:
        """``q [R, H, nope + rope]`` of a part's rows -> ``[R, H, value]``, some heads after the others.

        A head's row of the temporary arena is ``[values, key without position, rotated key]``: keys are its end, and
        values its beginning, which may be read as wide as the keys.
        """
        shape = self.shape
        latents = kv.k.index_select(0, part.slots)[:, 0].to(q.dtype)
        c, k_rope = latents.split((shape.rank, shape.rope), 1)
        width = shape.value + shape.nope + shape.rope
        together = max(1, latent_forms.EXPANDED_BYTES // (c.shape[0] * width * q.element_size()))
        out = q.new_empty(q.shape[0], self.heads, shape.value)
        for first in range(0, self.heads, together):
            up = self.up[first : first + together]
            arena = q.new_empty(c.shape[0], up.shape[0], width)
            arena[..., : -shape.rope] = torch.mm(c, up.flatten(0, 1).t()).unflatten(1, (up.shape[0], -1))
            arena[..., -shape.rope :] = k_rope[:, None]
            heads = PackedKV(arena[..., shape.value :], arena[..., : shape.value], "wide")
            some = slice(first, first + up.shape[0])
            out[:, some] = step.attention.attend(q[:, some], heads, self.spec, part.batch, 0)[0]
        return out

    def _per_head(self, x: Tensor, weight: Tensor) -> Tensor:
        """``x [R, H, K]``, each head times its matrix of ``weight [H, K, N]`` -> ``[R, H, N]``."""
        if self.numerics.batch_invariant:
            return tiled_heads_matmul(x, weight.float()).to(x.dtype)
        return torch.bmm(x.transpose(0, 1), weight).transpose(0, 1)

    def linears(self) -> Iterator[tuple[str, Linear]]:
        yield "q_and_latent", self.down
        if self.q_up is not None:
            yield "q_up", self.q_up
        yield "output", self.output

    def storage_size(self) -> int:
        """Bytes held besides the linear layers."""
        norms = self.norm.storage_size() + (self.q_norm.storage_size() if self.q_norm is not None else 0)
        return norms + self.up.nbytes
