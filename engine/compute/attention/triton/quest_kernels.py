"""QUEST (Tang et al. 2024, arXiv 2406.10774): which pages a query head should read, and attention over chosen pages.

Importing this needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.compute.attention.triton import loads
from engine.compute.attention.triton.kernels import capped
from engine.compute.attention.triton.tile_kernels import (
    LOG2E,
    PAGE,
    TABLES,
    place_of,
    store_lse,
    tile_of,
    tile_rows,
)


@triton.jit(do_not_specialize_on_alignment=["pages"])
def bound_pages(k, pages, bounds, DIM: tl.constexpr, LANES: tl.constexpr):
    """Grid (N, H_kv): the least and the greatest keys of ``pages [N]`` into ``bounds [pages, H_kv, 2 * DIM]``."""
    head, heads = tl.program_id(1), tl.num_programs(1)
    page = tl.load(pages + tl.program_id(0))
    channel = tl.arange(0, LANES)
    real = channel < DIM
    at = k + ((page * PAGE + tl.arange(0, PAGE)) * heads + head)[:, None] * DIM + channel[None, :]
    keys = tl.load(at, mask=real[None, :], other=0.0)
    out = bounds + (page * heads + head) * (2 * DIM) + channel
    tl.store(out, tl.min(keys, 0), mask=real)
    tl.store(out + DIM, tl.max(keys, 0), mask=real)


@triton.jit(do_not_specialize=["sequences", "width", "table_row"], do_not_specialize_on_alignment=TABLES)
def page_scores(q, bounds, table, row_start, kv_len, scores, sequences, width, q_row, q_head, table_row,
                GROUP: tl.constexpr, DIM: tl.constexpr, LANES: tl.constexpr, BM: tl.constexpr,
                BP: tl.constexpr):  # fmt: skip
    """Grid (tiles, H_kv, blocks of BP pages): ``scores [T, H, width]`` float32 of the pages of each row's sequence.

    A key k of a page lies between the page's least m and greatest M in each channel, so ``q k`` is at most
    ``sum_c max(q_c m_c, q_c M_c)``, which is ``min(q, 0) m + max(q, 0) M``: two matrix products. ``bounds [pages, H_kv,
    2 * DIM]``: m, then M. The row's own page scores inf, those after it -inf.
    """
    head, heads = tl.program_id(1), tl.num_programs(1)
    sequence, tile = tile_of(tl.program_id(0), row_start, sequences, GROUP, BM)
    begin = tl.load(row_start + sequence)
    rows = tl.load(row_start + sequence + 1) - begin
    if tile * BM >= rows * GROUP:
        return
    live, row, member = tile_rows(tile, rows, GROUP, BM)
    own = (tl.load(kv_len + sequence) - rows + row) // PAGE
    channel = tl.arange(0, LANES)
    q_at = (begin + row).to(tl.int64) * q_row + (head * GROUP + member) * q_head
    query = tl.load(q + q_at[:, None] + channel[None, :], mask=live[:, None] & (channel < DIM)[None, :], other=0.0)
    place = tl.program_id(2) * BP + tl.arange(0, BP)
    page = tl.load(table + sequence * table_row + place, mask=place < tl.max(own), other=0).to(tl.int64)
    at = bounds + (page * heads + head)[:, None] * (2 * DIM) + channel[None, :]
    least = tl.load(at, mask=(channel < DIM)[None, :], other=0.0)
    greatest = tl.load(at + DIM, mask=(channel < DIM)[None, :], other=0.0)
    negative, positive = tl.where(query < 0, query, 0.0), tl.where(query < 0, 0.0, query)
    found = tl.dot(negative.to(query.dtype), tl.trans(least), input_precision="ieee")
    found = tl.dot(positive.to(query.dtype), tl.trans(greatest), found, input_precision="ieee")
    found = tl.where(place[None, :] < own[:, None], found, float("-inf"))
    found = tl.where(place[None, :] == own[:, None], float("inf"), found)
    score_at = place_of(begin + row, member, GROUP)
    tl.store(scores + score_at[:, None] * width + place[None, :], found, mask=live[:, None] & (place < width)[None, :])


@triton.jit
def sequence_of(row, row_start, sequences):
    low, high = 0, sequences
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(row_start + middle) <= row:
            low = middle
        else:
            high = middle
    return low


@triton.jit(do_not_specialize=["sequences", "tokens", "chosen", "table_row"], do_not_specialize_on_alignment=TABLES)
def attend_pages(q, k, v, table, row_start, kv_len, pages, limits, out, lse_out, scale, softcap, sequences, tokens,
                 chosen, q_row, q_head, k_slot, k_head, v_slot, v_head, table_row,
                 GROUP: tl.constexpr, K_DIM: tl.constexpr, V_DIM: tl.constexpr, K_LANES: tl.constexpr,
                 V_LANES: tl.constexpr, SOFTCAP: tl.constexpr, LSE: tl.constexpr, PARTS: tl.constexpr,
                 BP: tl.constexpr):  # fmt: skip
    """Grid (T, H, splits): each row's head over the first ``limits [T]`` of its ``pages [T, H, chosen]``, BP at a time.

    Numbers of pages count in the row's sequence; nothing is seen of negative ones and of those after the row. Results
    are those of `kernels.attend`. Heads that share keys choose different pages, so there is one row at a time and no
    matrix product.
    """
    row, head, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    sequence = sequence_of(row, row_start, sequences)
    index = tl.load(kv_len + sequence) - tl.load(row_start + sequence + 1) + row
    place = row.to(tl.int64) * heads + head
    k_channel, v_channel = tl.arange(0, K_LANES), tl.arange(0, V_LANES)
    query = tl.load(q + row.to(tl.int64) * q_row + head * q_head + k_channel, mask=k_channel < K_DIM, other=0.0)
    query = query.to(tl.float32)
    lane = tl.arange(0, BP * PAGE)
    each = tl.cdiv(tl.cdiv(chosen, BP), tl.num_programs(2)) * BP
    start = tl.program_id(2) * each
    limit = tl.minimum(tl.load(limits + row), chosen)
    # A vector of one: Triton's interpreter knows no scalar that changes in a loop.
    most = tl.full((1,), float("-inf"), tl.float32)
    total = tl.zeros((1,), tl.float32)
    acc = tl.zeros((V_LANES,), tl.float32)
    for first in range(start, tl.minimum(start + each, chosen), BP):
        entry = first + lane // PAGE
        number = tl.load(pages + place * chosen + entry, mask=entry < limit, other=-1)
        key = number * PAGE + lane % PAGE
        seen = (number >= 0) & (key <= index)
        page = tl.load(table + sequence * table_row + number, mask=seen, other=0).to(tl.int64)
        slot = page * PAGE + lane % PAGE
        keys = loads.numbers(k + head // GROUP * k_head, slot, k_slot, K_DIM, K_LANES).to(tl.float32)
        scores = tl.sum(keys * query[None, :], 1) * scale
        if SOFTCAP:
            scores = capped(scores, softcap)
        scores = tl.where(seen, scores * LOG2E, float("-inf"))
        more = tl.maximum(most, tl.max(scores, 0))
        base = tl.where(more == float("-inf"), 0.0, more)
        weights = tl.exp2(scores - base)
        shrink = tl.exp2(most - base)
        most = more
        total = total * shrink + tl.sum(weights, 0)
        values = loads.numbers(v + head // GROUP * v_head, slot, v_slot, V_DIM, V_LANES).to(tl.float32)
        values = tl.where(seen[:, None], values, 0.0)
        acc = acc * shrink + tl.sum(weights[:, None] * values, 0)
    share = tl.where(total > 0, total, 1.0)
    if PARTS:
        place += tl.program_id(2).to(tl.int64) * tokens * heads
    tl.store(out + place * V_DIM + v_channel, (acc / share).to(out.dtype.element_ty), mask=v_channel < V_DIM)
    if LSE:
        store_lse(lse_out, place + tl.arange(0, 1), most, total, None)
