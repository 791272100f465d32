"""QUEST's choice of pages and attention over them, by Triton kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.packed import PackedKV
from engine.compute.attention.interface import AttnSpec
from engine.compute.attention.triton.launch import MAX_SPLITS, PROGRAMS, merge_parts
from engine.compute.batch import Batch, power_of_two
from engine.compute.native.gpu import processors
from engine.compute.native.triton_launch import Variants

SCORED_ROWS, SCORED_PAGES = 16, 32
PAGES_AT_ONCE = 2
LEAST_PAGES = 8
"""The fewest pages of a split. An estimate, to be measured on a GPU."""
_variants = Variants()


def bound_pages(kv: PackedKV, pages: Tensor) -> None:
    """Compute the bounds of the pages [N] int64 of a dense layer from their keys, see `PackedKV.bounds`."""
    from engine.compute.attention.triton import quest_kernels

    assert kv.bounds is not None
    dim = kv.k_dim

    def keywords() -> dict[str, Any]:
        return {"DIM": dim, "LANES": power_of_two(dim), "num_warps": 4}

    key = (kv.k.dtype, kv.kv_heads, dim)
    _variants.launch(quest_kernels.bound_pages, key, (len(pages), kv.kv_heads, 1), (kv.k, pages, kv.bounds), keywords)


def choose_pages(q: Tensor, bounds: Tensor, batch: Batch, count: int, group: int = 0) -> Tensor:
    """The pages [T, H, n] int64 that each query head reads, best first: its own, then those that may score highest.

    q [T, H, d]; bounds [pages, H_kv, 2 * d] in the dtype of q, each page's least keys, then its greatest. Pages are
    numbered in their sequence; n is `count` or the pages of the longest sequence, and where a row has fewer, pages that
    come after it follow. Of equal scores any may win.
    """
    scores = page_scores(q, bounds, batch, group)
    return scores.topk(min(count, scores.shape[-1]), dim=-1).indices


def page_scores(q: Tensor, bounds: Tensor, batch: Batch, group: int = 0) -> Tensor:
    """Upper bounds of q·k over the keys of each page [T, H, pages of the longest sequence] float32; inf for a row's own
    page, -inf after it, undefined in padding rows."""
    from engine.compute.attention.triton import quest_kernels

    host = batch.host
    width, kv_heads = -(-host.max_kv // PAGE_SIZE), bounds.shape[1]
    per_kv, dim = q.shape[1] // kv_heads, q.shape[2]
    q = q if q.stride(2) == 1 else q.contiguous()
    scores = q.new_empty((*q.shape[:2], width), dtype=torch.float32)
    grid = (host.T * per_kv // SCORED_ROWS + host.S, kv_heads, -(-width // SCORED_PAGES))
    args = (q, bounds, batch.page_table[group], batch.row_start, batch.kv_len, scores, host.S, width, *q.stride()[:2])

    def keywords() -> dict[str, Any]:
        lanes = max(16, power_of_two(dim))
        return {"GROUP": per_kv, "DIM": dim, "LANES": lanes, "BM": SCORED_ROWS, "BP": SCORED_PAGES, "num_warps": 4}

    key = (q.dtype, per_kv, kv_heads, dim, q.stride()[:2], q.data_ptr() % 16 == 0)
    _variants.launch(quest_kernels.page_scores, key, grid, (*args, batch.page_table.stride(1)), keywords)
    return scores


def attend_pages(
    q: Tensor,
    kv: PackedKV,
    spec: AttnSpec,
    batch: Batch,
    pages: Tensor,
    limits: Tensor,
    group: int = 0,
    need_lse: bool = False,
    splits: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Every head of q [T, H, d] over the first `limits` [T] int32 of its pages [T, H, n], up to the row itself.

    Pages as of `choose_pages`; negative numbers are none. Dense arenas, chains of tokens, no window. A row without
    pages gives (0, -inf).
    """
    from engine.compute.attention.triton import quest_kernels

    host, heads, chosen = batch.host, q.shape[1], pages.shape[2]
    q = q if q.stride(2) == 1 else q.contiguous()
    out = q.new_empty(q.shape[0], heads, kv.v_dim)
    lse = q.new_empty(q.shape[:2], dtype=torch.float32) if need_lse else None
    if q.shape[0] > host.T:
        out[host.T :] = 0
        if lse is not None:
            lse[host.T :] = -torch.inf
    if splits is None:
        wanted = -(-PROGRAMS * processors(q.device) // (host.T * heads))
        splits = min(power_of_two(wanted), power_of_two(-(-chosen // LEAST_PAGES)), MAX_SPLITS)
    part, part_lse = out, lse
    if splits > 1:
        part = q.new_empty(splits, host.T, heads, kv.v_dim, dtype=torch.float32)
        part_lse = q.new_empty(splits, host.T, heads, dtype=torch.float32)
    k, v, table = kv.k, kv.v, batch.page_table
    args = (
        q, k, v, table[group], batch.row_start, batch.kv_len, pages.contiguous(), limits, part, part_lse,
        spec.scale, spec.softcap or 0.0, host.S, host.T, chosen,
        *q.stride()[:2], *k.stride()[:2], *v.stride()[:2], table.stride(1),
    )  # fmt: skip

    def keywords() -> dict[str, Any]:
        return {
            "GROUP": heads // kv.kv_heads,
            "K_DIM": kv.k_dim,
            "V_DIM": kv.v_dim,
            "K_LANES": power_of_two(kv.k_dim),
            "V_LANES": power_of_two(kv.v_dim),
            "SOFTCAP": spec.softcap is not None,
            "LSE": part_lse is not None,
            "PARTS": splits > 1,
            "BP": PAGES_AT_ONCE,
            "num_warps": 4,
        }

    layout = (heads, kv.kv_heads, kv.k_dim, kv.v_dim, q.stride()[:2], k.stride()[:2], v.stride()[:2])
    form = (spec.softcap is not None, part_lse is not None, splits > 1, q.data_ptr() % 16 == 0)
    key = (q.dtype, pages.dtype, *layout, *form)
    _variants.launch(quest_kernels.attend_pages, key, (host.T, heads, splits), args, keywords)
    if splits > 1:
        merge_parts(part, part_lse, out, lse, host.T)
    return out, lse
