"""QUEST's choice of pages and attention over them, by Triton kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.attention.interface import AttnSpec
from engine.attention.triton.launch import MAX_SPLITS, PROGRAMS, merge_parts, processors
from engine.batch import Batch, power_of_two
from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.packed import PackedKV

SCORED_ROWS, SCORED_PAGES = 16, 32
PAGES_AT_ONCE = 2
LEAST_PAGES = 8
"""The fewest pages of a split. An estimate, to be measured on a GPU."""


def choose_pages(q: Tensor, bounds: Tensor, batch: Batch, count: int, group: int = 0) -> Tensor:
    """The `count` pages [T, H, count] int32 that each query head reads: its own, and those that may score highest.

    q [T, H, d]; bounds [pages, H_kv, 2 * d] in the dtype of q, each page's least keys, then its greatest. Pages are
    numbered in their sequence, in no order; -1 where there are fewer. Of equal scores any may win.
    """
    return best(page_scores(q, bounds, batch, group), count)


def page_scores(q: Tensor, bounds: Tensor, batch: Batch, group: int = 0) -> Tensor:
    """What no key of a page can exceed [T, H, pages of the longest sequence] float32; inf for a row's own page, -inf
    after it and in rows that are none."""
    from engine.attention.triton import quest_kernels

    host = batch.host
    width, kv_heads = -(-host.max_kv // PAGE_SIZE), bounds.shape[1]
    per_kv, dim = q.shape[1] // kv_heads, q.shape[2]
    q = q if q.stride(2) == 1 else q.contiguous()
    scores = q.new_full((*q.shape[:2], width), -torch.inf, dtype=torch.float32)
    grid = (host.T * per_kv // SCORED_ROWS + host.S, kv_heads, -(-width // SCORED_PAGES))
    quest_kernels.page_scores[grid](
        q, bounds, batch.page_table[group], batch.row_start, batch.kv_len, scores, host.S, width,
        *q.stride()[:2], batch.page_table.stride(1),
        GROUP=per_kv, DIM=dim, LANES=max(16, power_of_two(dim)), BM=SCORED_ROWS, BP=SCORED_PAGES, num_warps=4,
    )  # fmt: skip
    return scores


def best(scores: Tensor, count: int) -> Tensor:
    """The places [.., count] int32 of the highest scores, -1 where fewer are above -inf."""
    values, places = scores.topk(min(count, scores.shape[-1]), dim=-1)
    places = places.masked_fill(values == -torch.inf, -1).int()
    return torch.nn.functional.pad(places, (0, count - places.shape[-1]), value=-1)


def attend_pages(
    q: Tensor,
    kv: PackedKV,
    spec: AttnSpec,
    batch: Batch,
    pages: Tensor,
    group: int = 0,
    need_lse: bool = False,
    splits: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Every head of q [T, H, d] over its own pages [T, H, n] int32 (see `choose_pages`), up to the row itself.

    Dense arenas, chains of tokens, no window. A row without pages gives (0, -inf).
    """
    from engine.attention.triton import quest_kernels

    host, heads, chosen = batch.host, q.shape[1], pages.shape[2]
    q = q if q.stride(2) == 1 else q.contiguous()
    out, lse = q.new_empty(q.shape[0], heads, kv.v_dim), None
    if need_lse:
        lse = torch.full(q.shape[:2], -torch.inf, dtype=torch.float32, device=q.device)
    out[host.T :] = 0
    if splits is None:
        wanted = -(-PROGRAMS * processors(q.device) // (host.T * heads))
        splits = min(power_of_two(wanted), power_of_two(-(-chosen // LEAST_PAGES)), MAX_SPLITS)
    part, part_lse = out, lse
    if splits > 1:
        part = q.new_empty(splits, host.T, heads, kv.v_dim, dtype=torch.float32)
        part_lse = q.new_empty(splits, host.T, heads, dtype=torch.float32)
    k, v, table = kv.k, kv.v, batch.page_table
    quest_kernels.attend_pages[(host.T, heads, splits)](
        q, k, v, table[group], batch.row_start, batch.kv_len, pages.contiguous(), part, part_lse,
        spec.scale, spec.softcap or 0.0, host.S, host.T, chosen,
        *q.stride()[:2], *k.stride()[:2], *v.stride()[:2], table.stride(1),
        GROUP=heads // kv.kv_heads, K_DIM=kv.k_dim, V_DIM=kv.v_dim, K_LANES=power_of_two(kv.k_dim),
        V_LANES=power_of_two(kv.v_dim), SOFTCAP=spec.softcap is not None, LSE=part_lse is not None, PARTS=splits > 1,
        BP=PAGES_AT_ONCE, num_warps=4,
    )  # fmt: skip
    if splits > 1:
        merge_parts(part, part_lse, out, lse, host.T)
    return out, lse
