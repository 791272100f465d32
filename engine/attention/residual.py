"""Attention over a packed body and recent tokens (kind "kivi"), row by row, by definition.

A row's two sets of keys follow from its index (`engine.cache.recent`), each is attended by itself, and the results
are merged. One row at a time the shape of every operation follows from that index too: a row gets the same bits
whatever stands beside it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.attention.interface import AttnSpec, merge
from engine.attention.reference import attend_dense, slots_of, visible
from engine.cache.codecs import unpack_slots
from engine.cache.packed import PackedKV
from engine.core.batch import Batch


def attend_with_recent(
    q: Tensor, kv: PackedKV, spec: AttnSpec, batch: Batch, need_lse: bool = False
) -> tuple[Tensor, Tensor | None]:
    """See `AttentionBackend.attend`: the body is in group 0, the recent tokens in group 1."""
    assert kv.recent is not None
    assert batch.views is not None
    assert batch.views.packed_until is not None
    out = q.new_zeros(q.shape[0], q.shape[1], kv.v_dim)
    lse_out = torch.full(q.shape[:2], -torch.inf, dtype=torch.float32, device=q.device)
    host, until = batch.host, batch.views.packed_until
    for s in range(host.S):
        begin, end, kv_len = host.row_start[s], host.row_start[s + 1], host.kv_len[s]
        packed, recent = int(until[begin:end].max()), int(until[begin:end].min())
        k, v = unpack_slots(kv, slots_of(batch, 0, s, packed), q.dtype)
        slots = slots_of(batch, 1, s, kv_len)[recent:]
        recent_k, recent_v = (arena.index_select(0, slots) for arena in (kv.recent.k, kv.recent.v))
        seen = visible(batch, spec, s, kv_len, slice(begin, end))
        for row in range(begin, end):
            index = seen[row - begin].nonzero().squeeze(1)
            body, last = index[index < until[row]], index[index >= until[row]] - recent
            o, lse = _attend(q[row : row + 1], recent_k[last], recent_v[last], spec)
            if body.shape[0]:
                o, lse = merge(o, lse, *_attend(q[row : row + 1], k[body], v[body], spec))
            out[row], lse_out[row] = o[0].to(q.dtype), lse[0].float()
    return out, lse_out if need_lse else None


def _attend(q: Tensor, k: Tensor, v: Tensor, spec: AttnSpec) -> tuple[Tensor, Tensor]:
    return attend_dense(q, k, v, spec, torch.ones(1, k.shape[0], dtype=torch.bool, device=q.device))
