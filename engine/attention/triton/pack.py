"""Writes keys and values to their arenas: rotation, quantisation and storing as one launch, and KIVI's groups as two.

engine/cache/stores/codecs.py defines in torch what each launch computes: scales and minima are rounded to float16
first, and codes follow from the rounded ones.
"""

from __future__ import annotations

from torch import Tensor

from engine.attention.rotation import RotaryStep
from engine.batch import power_of_two
from engine.cache.stores.packed import CHANNEL_GROUP, Flush, PackedKV, value_group


def write(q: Tensor, k: Tensor, v: Tensor, rotary: RotaryStep | None, slots: Tensor, kv: PackedKV) -> Tensor:
    """Rotate q [T, H, d] and k [T, H_kv, d], store k and v [T, H_kv, d_v] at slots [T] int64; returns the rotated q.

    kv is "dense", "int8" or "int4". Heads may lie apart (a fused projection), their channels not. Slots repeat only
    where nobody reads (page 0).
    """
    from engine.attention.triton import pack_kernels

    rows, kv_heads, k_dim = k.shape
    v_dim, heads = v.shape[2], q.shape[1] if rotary is not None else 0
    four = kv.kind == "int4"
    out = q.new_empty(q.shape) if rotary is not None else q
    table = slots if rotary is None else rotary.cos  # not read where nothing rotates
    k_group, v_group = value_group(k_dim), value_group(v_dim)
    pack_kernels.write[(rows, heads + kv_heads)](
        q, k, v, table, table if rotary is None else rotary.sin, slots, out, kv.k, kv.v, kv.k_meta, kv.v_meta,
        *q.stride()[:2], *k.stride()[:2], *v.stride()[:2], table.stride(0),
        HEADS=heads, KIND=kv.kind, K_DIM=k_dim, V_DIM=v_dim, ROTARY=0 if rotary is None else rotary.cos.shape[-1],
        K_GROUP=k_group, V_GROUP=v_group, K_GROUPS=power_of_two(k_dim // k_group),
        V_GROUPS=power_of_two(v_dim // v_group), K_LANES=power_of_two(k_dim // 2 if four else k_dim),
        V_LANES=power_of_two(v_dim // 2 if four else v_dim), num_warps=1,
        enable_fp_fusion=False,  # the reference rounds each product
    )  # fmt: skip
    return out


def flush(kv: PackedKV, to: Flush) -> None:
    """Pack whole groups of recent tokens into the arenas of "kivi"."""
    from engine.attention.triton import pack_kernels

    assert kv.recent is not None
    assert kv.v_meta is not None
    tokens = to.recent_slots.shape[0]
    k_dim, v_dim = kv.k_dim, kv.v_dim
    if not tokens:
        return
    pack_kernels.flush_keys[(tokens // CHANNEL_GROUP, kv.kv_heads)](
        kv.recent.k, to.recent_slots, to.pages, kv.k, kv.k_meta, kv.recent.k.stride(0), WIDTH=k_dim, BITS=kv.k_bits,
        LANES=power_of_two(k_dim * kv.k_bits // 8), num_warps=4, enable_fp_fusion=False,
    )  # fmt: skip
    pack_kernels.flush_values[(tokens, kv.kv_heads)](
        kv.recent.v, to.recent_slots, to.pages, kv.v, kv.v_meta, kv.recent.v.stride(0), WIDTH=v_dim, BITS=kv.v_bits,
        GROUP=value_group(v_dim), GROUPS=power_of_two(v_dim // value_group(v_dim)),
        LANES=power_of_two(v_dim * kv.v_bits // 8), num_warps=1, enable_fp_fusion=False,
    )  # fmt: skip
