"""Writes keys and values to their arenas: rotation, quantisation and storing as one launch, and KIVI's groups as two.

engine/cache/stores/codecs.py defines in torch what each launch computes: scales and minima are rounded to float16
first, and codes follow from the rounded ones.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from engine.cache.stores.packed import CHANNEL_GROUP, Flush, PackedKV, value_group
from engine.compute.attention.rotation import RotaryStep
from engine.compute.batch import power_of_two
from engine.compute.native.triton_launch import Variants

_variants = Variants()


def write(q: Tensor, k: Tensor, v: Tensor, rotary: RotaryStep | None, slots: Tensor, kv: PackedKV) -> Tensor:
    """Rotate q [T, H, d] and k [T, H_kv, d], store k and v [T, H_kv, d_v] at slots [T] int64; returns the rotated q.

    kv is "dense", "int8", "fp8" or "int4". Heads may lie apart (a fused projection), their channels not. Slots repeat
    only where nobody reads (page 0).
    """
    from engine.compute.attention.triton import pack_kernels

    rows, kv_heads, k_dim = k.shape
    v_dim, heads = v.shape[2], q.shape[1] if rotary is not None else 0
    out = q.new_empty(q.shape) if rotary is not None else q
    # The slots stand for tables that are not read where nothing rotates.
    cos, sin = (slots, slots) if rotary is None else (rotary.cos, rotary.sin)
    turns = 0 if rotary is None else cos.shape[-1]
    strides = (*q.stride()[:2], *k.stride()[:2], *v.stride()[:2], cos.stride(0))
    args = (q, k, v, cos, sin, slots, out, kv.k, kv.v, kv.k_meta, kv.v_meta, *strides)

    def keywords() -> dict[str, Any]:
        four = kv.kind == "int4"
        return {
            "HEADS": heads,
            "KIND": kv.kind,
            "K_DIM": k_dim,
            "V_DIM": v_dim,
            "ROTARY": turns,
            "K_GROUP": value_group(k_dim),
            "V_GROUP": value_group(v_dim),
            "K_LANES": power_of_two(k_dim // 2 if four else k_dim),
            "V_LANES": power_of_two(v_dim // 2 if four else v_dim),
            "num_warps": 1,
            "enable_fp_fusion": False,  # the reference rounds each product
        }

    key = (
        kv.kind,
        q.dtype,
        heads,
        kv_heads,
        k_dim,
        v_dim,
        turns,
        strides,
        *(x.data_ptr() % 16 == 0 for x in (q, k, v)),
    )
    _variants.launch(pack_kernels.write, key, (rows, heads + kv_heads, 1), args, keywords)
    return out


def flush(kv: PackedKV, to: Flush) -> None:
    """Pack whole groups of recent tokens into the arenas of "kivi"."""
    from engine.compute.attention.triton import pack_kernels

    assert kv.recent is not None
    assert kv.v_meta is not None
    tokens, (k_dim, v_dim) = to.recent_slots.shape[0], (kv.k_dim, kv.v_dim)
    if not tokens:
        return

    def of_keys() -> dict[str, Any]:
        lanes = power_of_two(k_dim * kv.k_bits // 8)
        return {"WIDTH": k_dim, "BITS": kv.k_bits, "LANES": lanes, "num_warps": 4, "enable_fp_fusion": False}

    def of_values() -> dict[str, Any]:
        sizes = {"GROUP": value_group(v_dim), "LANES": power_of_two(v_dim * kv.v_bits // 8)}
        return {"WIDTH": v_dim, "BITS": kv.v_bits, **sizes, "num_warps": 1, "enable_fp_fusion": False}

    key = (kv.recent.k.dtype, kv.k_bits, kv.v_bits, k_dim, v_dim, kv.kv_heads)
    keys = (kv.recent.k, to.recent_slots, to.pages, kv.k, kv.k_meta, kv.recent.k.stride(0))
    values = (kv.recent.v, to.recent_slots, to.pages, kv.v, kv.v_meta, kv.recent.v.stride(0))
    groups, heads = tokens // CHANNEL_GROUP, kv.kv_heads
    _variants.launch(pack_kernels.flush_keys, key, (groups, heads, 1), keys, of_keys)
    _variants.launch(pack_kernels.flush_values, key, (tokens, heads, 1), values, of_values)
