"""The structures that native attention is given."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from engine.cache.stores.packed import PackedKV

_KINDS = {"int8": 1, "fp8": 2, "int4": 3, "kivi": 4}
"""Numbers of the packed kinds in attention.h; all others are 0, numbers in bfloat16."""


def fields(kind: type[Any], *names: str) -> tuple[tuple[str, type[Any]], ...]:
    """Fields of one type, for ``_fields_`` of a structure."""
    return tuple((name, kind) for name in names)


class Attend(ctypes.Structure):
    """``Attend`` of attention.h."""

    _fields_ = (
        *fields(ctypes.c_void_p, "k", "v", "k_meta", "v_meta", "pages", "rows"),
        *fields(ctypes.c_int64, "count", "heads", "kv_heads", "k_width", "v_width"),
        *fields(ctypes.c_int64, "k_slot", "k_head", "v_slot", "v_head", "kind", "k_bits", "v_bits", "wide", "q_row"),
        *fields(ctypes.c_float, "scale", "softcap"),
        *fields(ctypes.c_void_p, "q", "out", "lse", "trees"),
    )


class QuestArguments(ctypes.Structure):
    """``Quest`` of quest.c: paged keys and values, and the bounds of each page's keys."""

    _fields_ = (("attend", Attend), ("bounds", ctypes.c_void_p))


def rows_whole(q: Tensor) -> Tensor:
    """``q [T, H, d]``, copied where the heads of a row do not lie behind each other."""
    return q if q.stride(2) == 1 and q.stride(1) == q.shape[2] else q.contiguous()


def attend_of(
    q: Tensor,
    kv: PackedKV,
    pages: Tensor,
    rows: Tensor,
    scale: float,
    out: Tensor,
    lse: Tensor | None,
    trees: Tensor | None = None,
    softcap: float | None = None,
) -> Attend:
    """Attention of ``q [T, H, d_k]`` over paged keys and values, numbers in bfloat16 or codes (`PackedKV`).

    It holds addresses: the tensors have to outlive it. ``pages`` int32 holds page numbers; ``rows [n, 3]`` int64 says
    for each of the first n rows where its pages begin and which of its keys [first, stop) it sees. Rows of a sequence
    follow each other. The first n rows of ``out [T, H, d_v]`` are written, and those of ``lse [T, H]`` float32, if it
    is given. q and out are both bfloat16 or both float32; out is contiguous, and so are q's rows. Widths are multiples
    of 32: d_k up to 576, of codes up to 256. ``trees [n, 2]`` int64 are the first key of a row's drafted tree, and bits
    for those that it sees of the keys from there on, -1: all. A softcap is that of `AttnSpec`.
    """
    return Attend(
        *_addresses(kv),
        pages.data_ptr(),
        rows.data_ptr(),
        rows.shape[0],
        q.shape[1],
        *_shapes(kv),
        q.dtype == torch.float32,
        q.stride(0) * q.element_size(),
        scale,
        softcap or 0.0,
        q.data_ptr(),
        out.data_ptr(),
        *(None if each is None else each.data_ptr() for each in (lse, trees)),
    )


def attend_of_pages(kv: PackedKV, dtype: torch.dtype) -> Attend:
    """Keys and values alone, which become numbers of ``dtype``, float32 or bfloat16."""
    return Attend(*_addresses(kv), None, None, 0, 0, *_shapes(kv), dtype == torch.float32)


def _addresses(kv: PackedKV) -> tuple[int | None, ...]:
    """Addresses of keys, values and their metadata: the first four fields of `Attend`."""
    return tuple(None if part is None else part.data_ptr() for part in (kv.k, kv.v, kv.k_meta, kv.v_meta))


def _shapes(kv: PackedKV) -> tuple[int, ...]:
    """The fields of `Attend` from ``kv_heads`` to ``v_bits``."""
    k, v = kv.k.stride(), kv.v.stride()
    k_size, v_size = kv.k.element_size(), kv.v.element_size()
    strides = (k[0] * k_size, k[1] * k_size, v[0] * v_size, v[1] * v_size)
    return (kv.kv_heads, kv.k_dim, kv.v_dim, *strides, _KINDS.get(kv.kind, 0), kv.k_bits, kv.v_bits)
