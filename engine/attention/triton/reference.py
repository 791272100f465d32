"""What the kernels compute, written down in torch: the oracle of their trial and of their tests."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.attention.interface import AttnSpec
from engine.attention.reference import attend_dense, slots_of, visible
from engine.cache.packed import CHANNEL_GROUP, PLAIN_KINDS, PackedKV, value_group
from engine.cache.pool import PAGE_SIZE
from engine.core.batch import Batch


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
    out = q.new_zeros(q.shape[0], q.shape[1], kv.v_dim)
    lse_out = torch.full(q.shape[:2], -torch.inf, dtype=torch.float32, device=q.device)
    starts, lengths = batch.row_start.tolist(), batch.kv_len.tolist()
    for s in range(batch.host.S):
        begin, end, kv_len = starts[s], starts[s + 1], lengths[s]
        slots = slots_of(batch, group, s, kv_len)
        mask = visible(batch, spec, s, kv_len)
        # A new row of a tree counts as the key at its depth, as for a window.
        key = torch.cat([torch.arange(kv_len - end + begin, device=q.device), batch.positions[begin:end]])
        if first is not None:
            mask = mask & (key >= first[begin:end, None])
        if stop is not None:
            mask = mask & (key < stop[begin:end, None])
        k, v = numbers(kv, slots)
        o, lse = attend_dense(q[begin:end], k, v, spec, mask)
        out[begin:end], lse_out[begin:end] = o.to(q.dtype), lse.float()
    return out, lse_out if need_lse else None


def numbers(kv: PackedKV, slots: Tensor) -> tuple[Tensor, Tensor]:
    """Keys [n, H_kv, d] and values [n, H_kv, d_v] of a sequence's slots from its first token on: see `PackedKV`."""
    if kv.kind in PLAIN_KINDS:
        return kv.k[slots], kv.v[slots]
    assert kv.k_meta is not None
    assert kv.v_meta is not None
    if kv.kind == "int8":
        pairs = ((kv.k, kv.k_meta), (kv.v, kv.v_meta))
        k, v = (codes[slots].float() * scale[slots].float()[..., None] for codes, scale in pairs)
        return k, v
    v = _token_groups(kv.v[slots], kv.v_meta[slots], kv.v_bits)
    if kv.kind == "int4":
        return _token_groups(kv.k[slots], kv.k_meta[slots], kv.k_bits), v
    pages = slots // PAGE_SIZE
    start = torch.arange(len(slots), device=slots.device) // CHANNEL_GROUP * CHANNEL_GROUP
    # The end of a sequence may have no odd page; what is there is not packed yet.
    odd = pages[(start + PAGE_SIZE).clamp(max=len(slots) - 1)]
    scale, least = kv.k_meta[pages[start]].float(), kv.k_meta[odd].float()
    return unpacked(kv.k[slots], kv.k_bits).float() * scale + least, v


def unpacked(codes: Tensor, bits: int) -> Tensor:
    """[.., d * bits / 8] uint8 -> codes [.., d] uint8."""
    return torch.cat([codes >> place & (1 << bits) - 1 for place in range(0, 8, bits)], -1)


def _token_groups(codes: Tensor, meta: Tensor, bits: int) -> Tensor:
    values = unpacked(codes, bits).float()
    grouped = values.unflatten(-1, (-1, value_group(values.shape[-1])))
    return (grouped * meta[..., :1].float() + meta[..., 1:].float()).flatten(-2)
