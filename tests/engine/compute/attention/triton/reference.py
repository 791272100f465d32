"""What the kernels compute, in torch: the definitions that their tests and benchmarks compare them with."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.codecs import pack_absmax, pack_along_channels, pack_along_tokens
from engine.cache.stores.packed import BYTE_KINDS, Flush, PackedKV
from engine.compute.attention.backends.reference import ReferenceAttention, attend_dense, slots_of
from engine.compute.attention.interface import AttnSpec, KeyRange
from engine.compute.attention.rotation import RotaryStep, rotate
from engine.compute.batch import Batch


def attend(
    q: Tensor,
    kv: PackedKV,
    spec: AttnSpec,
    batch: Batch,
    group: int = 0,
    need_lse: bool = False,
    first: Tensor | None = None,
    stop: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """As `launch.attend`."""
    keys = None if first is None and stop is None else KeyRange(_on_host(first), _on_host(stop))
    return ReferenceAttention().attend(q, kv, spec, batch, group, need_lse, keys)


def write(q: Tensor, k: Tensor, v: Tensor, rotary: RotaryStep | None, slots: Tensor, kv: PackedKV) -> Tensor:
    """As `pack.write`."""
    if rotary is not None:
        q, k = rotate(q, rotary), rotate(k, rotary)
    for x, arena, meta in ((k, kv.k, kv.k_meta), (v, kv.v, kv.v_meta)):
        if kv.kind == "dense" or meta is None:
            arena[slots] = x
        else:
            arena[slots], meta[slots] = pack_absmax(x, kv.kind) if kv.kind in BYTE_KINDS else pack_along_channels(x, 4)
    return q


def flush(kv: PackedKV, to: Flush) -> None:
    """As `pack.flush`."""
    assert kv.recent is not None
    assert kv.k_meta is not None
    assert kv.v_meta is not None
    slots = (to.pages[:, None] * PAGE_SIZE + torch.arange(PAGE_SIZE, device=to.pages.device)).flatten()
    kv.k[slots], kv.k_meta[to.pages] = pack_along_tokens(kv.recent.k[to.recent_slots], kv.k_bits)
    kv.v[slots], kv.v_meta[slots] = pack_along_channels(kv.recent.v[to.recent_slots], kv.v_bits)


def page_scores(q: Tensor, bounds: Tensor, batch: Batch, group: int = 0) -> Tensor:
    """As `quest.page_scores`, by the definition."""
    host, dim = batch.host, q.shape[2]
    scores = q.new_full((*q.shape[:2], -(-host.max_kv // PAGE_SIZE)), -torch.inf, dtype=torch.float32)
    starts, lengths = batch.row_start.tolist(), batch.kv_len.tolist()
    for s in range(host.S):
        for row in range(starts[s], starts[s + 1]):
            own = (lengths[s] - starts[s + 1] + row) // PAGE_SIZE
            of_heads = bounds[batch.page_table[group, s, :own].long()].float()
            of_heads = of_heads.repeat_interleave(q.shape[1] // bounds.shape[1], 1)
            query = q[row].float()
            products = torch.maximum(query * of_heads[..., :dim], query * of_heads[..., dim:])
            scores[row, :, :own], scores[row, :, own] = products.sum(-1).t(), torch.inf
    return scores


def attend_pages(
    q: Tensor,
    kv: PackedKV,
    spec: AttnSpec,
    batch: Batch,
    pages: Tensor,
    group: int = 0,
    need_lse: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """As `quest.attend_pages`, by the definition."""
    out = q.new_zeros(*q.shape[:2], kv.v_dim)
    lse = torch.full(q.shape[:2], -torch.inf, dtype=torch.float32, device=q.device)
    starts, lengths = batch.row_start.tolist(), batch.kv_len.tolist()
    for s in range(batch.host.S):
        slots = slots_of(batch, group, s, lengths[s])
        key, k, v = torch.arange(lengths[s], device=q.device), kv.k[slots], kv.v[slots]
        for row in range(starts[s], starts[s + 1]):
            causal = key <= lengths[s] - starts[s + 1] + row
            for head in range(q.shape[1]):
                seen = causal & (key[:, None] // PAGE_SIZE == pages[row, head]).any(1)
                of_kv = slice(head // (q.shape[1] // kv.kv_heads), head // (q.shape[1] // kv.kv_heads) + 1)
                o, found = attend_dense(q[row : row + 1, head : head + 1], k[:, of_kv], v[:, of_kv], spec, seen[None])
                out[row, head], lse[row, head] = o[0, 0].to(q.dtype), found[0, 0]
    return out, lse if need_lse else None


def _on_host(bounds: Tensor | None) -> np.ndarray | None:
    return None if bounds is None else bounds.long().cpu().numpy()
