"""Attention of a few rows over keys and values of 4 bits in wide heads: as `nibble_kernels`, by one warp.

A warp would have more sums of 16 rows than registers: here scores have eight, as many columns as tensor cores have, and
weights are turned about on their way to the product with values.

Importing this needs Triton.
"""

# ruff: noqa: RUF005 - Triton has no starred tuples

from __future__ import annotations

import triton
import triton.language as tl

from engine.compute.attention.triton.nibble_kernels import column_of, four_codes
from engine.compute.attention.triton.pack_kernels import rotated
from engine.compute.attention.triton.tile_kernels import (
    LOG2E,
    TABLES,
    enter_text,
    keys_of_text,
    merge_if_last,
    result_places,
    slots_of,
    store_lse,
    tile_rows,
    write_new,
)

COLUMNS = tl.constexpr(16)
"""Columns of products with minima, one for each group, as few as tensor cores have. The last one of values is 1, whose
product is the sum of the rounded weights."""
VALUES = tl.constexpr(16.0)
"""Factor of weights, so that few products with scales are smaller than float16 holds in full."""


@triton.jit
def _queries(at, cos, sin, live, group, HALF: tl.constexpr, ROTARY: tl.constexpr):
    """[HALF, R] float32 of a group's even channels, and of its odd ones."""
    channel = group * 2 * HALF + 2 * tl.arange(0, HALF)[:, None]
    even = rotated(at[None, :], cos, sin, channel, live[None, :], ROTARY)
    return even, rotated(at[None, :], cos, sin, channel + 1, live[None, :], ROTARY)


@triton.jit
def _scales(at, known, MASKED: tl.constexpr):
    """[BN, 1] float16 scales of int32 of a scale and a minimum each; of keys that are not ``known`` 0."""
    if MASKED:
        both = tl.load(at, mask=known, other=0)
    else:
        both = tl.load(at)
    return both.to(tl.int16).to(tl.float16, bitcast=True)[:, None]


@triton.jit
def _minima(at, known, NUMBER: tl.constexpr, MASKED: tl.constexpr):
    """[BN, COLUMNS] minima of the same."""
    if MASKED:
        both = tl.load(at, mask=known[:, None], other=0)
    else:
        both = tl.load(at)
    return (both >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(NUMBER)


@triton.jit
def _block(block, most, added, sums, queries, query_sums, factor, limit, length, live, table,
           k, v, k_meta, v_meta, stride, meta_slot,
           PAIRS: tl.constexpr, HALF: tl.constexpr, BN: tl.constexpr, MASKED: tl.constexpr, ASM: tl.constexpr,
           UNIT: tl.constexpr):  # fmt: skip
    """The running softmax and sums after a block of keys. Not MASKED: every row sees all of it."""
    NUMBER: tl.constexpr = query_sums.dtype
    key, known, slot = slots_of(table, block, length, BN, MASKED)
    lane = tl.arange(0, HALF)
    column = tl.arange(0, COLUMNS)
    at = slot[:, None] * meta_slot + (column % (2 * PAIRS))[None, :]
    lowest = tl.dot(_minima(k_meta + at, known, NUMBER, MASKED), query_sums, input_precision="ieee")
    scores = tl.zeros((BN, live.shape[0]), tl.float32)
    for pair in tl.static_range(PAIRS):
        words = tl.load(k + slot[:, None] * stride + pair * HALF + lane[None, :])
        even_low, even_high, odd_low, odd_high = four_codes(words, ASM, NUMBER)
        low = tl.dot(even_low, queries[4 * pair], input_precision="ieee")
        low = tl.dot(odd_low, queries[4 * pair + 1], low, input_precision="ieee")
        high = tl.dot(even_high, queries[4 * pair + 2], input_precision="ieee")
        high = tl.dot(odd_high, queries[4 * pair + 3], high, input_precision="ieee")
        scale_at = k_meta + slot * meta_slot + pair
        scores += low * _scales(scale_at, known, MASKED).to(tl.float32)
        scores += high * _scales(scale_at + PAIRS, known, MASKED).to(tl.float32)
    scores = scores * (factor * UNIT)[None, :] + lowest * factor[None, :]
    if MASKED:
        scores = tl.where((key[:, None] < limit[None, :]) & live[None, :], scores, float("-inf"))
    more = tl.maximum(most, tl.max(scores, 0))
    base = more
    if MASKED:
        base = tl.where(more == float("-inf"), 0.0, more)
    weights = (tl.exp2(scores - base[None, :]) * VALUES).to(NUMBER)
    shrink = tl.exp2(most - base)
    least = tl.where((column == COLUMNS - 1)[None, :], 1.0, _minima(v_meta + at, known, NUMBER, MASKED))
    added = tl.dot(tl.trans(weights), least, added * shrink[:, None], input_precision="ieee")
    result = ()
    for pair in tl.static_range(PAIRS):
        words = tl.load(v + slot[:, None] * stride + pair * HALF + lane[None, :])
        even_low, even_high, odd_low, odd_high = four_codes(words, ASM, NUMBER)
        scale_at = v_meta + slot * meta_slot + pair
        low = tl.trans(weights * _scales(scale_at, known, MASKED).to(NUMBER))
        high = tl.trans(weights * _scales(scale_at + PAIRS, known, MASKED).to(NUMBER))
        result = result + (  # type: ignore[assignment]
            tl.dot(low, even_low, sums[4 * pair] * shrink[:, None], input_precision="ieee"),
            tl.dot(low, odd_low, sums[4 * pair + 1] * shrink[:, None], input_precision="ieee"),
            tl.dot(high, even_high, sums[4 * pair + 2] * shrink[:, None], input_precision="ieee"),
            tl.dot(high, odd_high, sums[4 * pair + 3] * shrink[:, None], input_precision="ieee"),
        )
    return more, added, result


@triton.jit(do_not_specialize=["tokens", "table_row", "ahead_bytes"], do_not_specialize_on_alignment=TABLES)
def attend_wide_nibbles(q, k, v, k_meta, v_meta, table, row_start, kv_len, out, lse_out, merged, merged_lse, arrived,
                   new_k, new_v, cos, sin, turns, slots, scale, tokens,
                   q_row, q_head, stride, head_stride, table_row,
                   new_k_row, new_k_head, new_v_row, new_v_head, turn_row, ahead, ahead_bytes,
                   GROUP: tl.constexpr, PAIRS: tl.constexpr, HALF: tl.constexpr, ASM: tl.constexpr, UNIT: tl.constexpr,
                   LSE: tl.constexpr, PARTS: tl.constexpr, MERGED: tl.constexpr, MERGED_ROWS: tl.constexpr,
                   MERGED_COLUMNS: tl.constexpr, MERGED_LSE: tl.constexpr, WRITES: tl.constexpr, ROTARY: tl.constexpr,
                   LOOKED_UP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """Grid (S, H_kv, splits); at most BM rows times heads a sequence. Keys and values int16 ``[slots, H_kv, PAIRS *
    HALF]`` of 4 * PAIRS * HALF channels, of which 2 * HALF share a scale; strides of them in int16. The rest as in
    `kernels.attend`."""
    begin, rows, length = enter_text(row_start, kv_len, ahead, ahead_bytes, EARLY)
    if rows == 0:
        return
    PLANE: tl.constexpr = 2 * PAIRS * HALF
    head, heads = tl.program_id(1), tl.num_programs(1)
    live, row, member = tile_rows(0, rows, GROUP, BM)
    limit, start, middle, end = keys_of_text(row, rows, length, BN)
    if WRITES:
        codes: tl.constexpr = tl.pointer_type(tl.uint8)
        cos, sin = write_new(new_k, new_v, cos, sin, turns, slots, k.to(codes, bitcast=True), v.to(codes, bitcast=True),
                             k_meta, v_meta, begin, (length - 1) // BN, start, end, new_k_row, new_k_head, new_v_row,
                             new_v_head, turn_row, "int4", 2 * PLANE, 2 * PLANE, ROTARY, LOOKED_UP, 2 * HALF, 2 * HALF,
                             PLANE, PLANE)  # fmt: skip

    NUMBER: tl.constexpr = tl.float32 if q.dtype.element_ty == tl.float32 else tl.float16
    at = q + (begin + row).to(tl.int64) * q_row + (head * GROUP + member) * q_head
    factor = tl.zeros((BM,), tl.float32)
    for group in tl.static_range(2 * PAIRS):
        even, odd = _queries(at, cos, sin, live, group, HALF, ROTARY)
        factor = tl.maximum(factor, tl.maximum(tl.max(tl.abs(even), 0), tl.max(tl.abs(odd), 0)))
    factor = tl.where(factor > 0, factor, 1.0)
    queries = ()
    column = tl.arange(0, COLUMNS)[:, None]
    query_sums = tl.zeros((COLUMNS, BM), tl.float32)
    for pair in tl.static_range(PAIRS):
        for plane in tl.static_range(2):
            even, odd = _queries(at, cos, sin, live, plane * PAIRS + pair, HALF, ROTARY)
            even, odd = (even / factor[None, :]).to(NUMBER), (odd / factor[None, :]).to(NUMBER)
            both = (tl.sum(even.to(tl.float32), 0) + tl.sum(odd.to(tl.float32), 0))[None, :]
            # A sum is a float16 and what that leaves.
            rounded = both.to(NUMBER).to(tl.float32)
            query_sums += tl.where(column == plane * PAIRS + pair, rounded, 0.0)
            query_sums += tl.where(column == (2 + plane) * PAIRS + pair, both - rounded, 0.0)
            queries = queries + (even * (1.0 / 16**plane), odd * (1.0 / 16**plane))  # type: ignore[assignment]
    query_sums = query_sums.to(NUMBER)
    factor *= scale * LOG2E
    table += tl.program_id(0) * table_row
    k += head * head_stride
    v += head * head_stride
    k_meta += head * (2 * PAIRS)
    v_meta += head * (2 * PAIRS)
    meta_slot = heads * (2 * PAIRS)
    most = tl.full((BM,), float("-inf"), tl.float32)
    added = tl.zeros((BM, COLUMNS), tl.float32)
    sums = ()
    for _ in tl.static_range(4 * PAIRS):
        sums = sums + (tl.zeros((BM, HALF), tl.float32),)  # type: ignore[assignment]
    for block in range(start, middle):
        most, added, sums = _block(
            block, most, added, sums, queries, query_sums, factor, limit, length, live, table,
            k, v, k_meta, v_meta, stride, meta_slot, PAIRS, HALF, BN, False, ASM, UNIT,
        )  # fmt: skip
    for block in range(middle, end):
        most, added, sums = _block(
            block, most, added, sums, queries, query_sums, factor, limit, length, live, table,
            k, v, k_meta, v_meta, stride, meta_slot, PAIRS, HALF, BN, True, ASM, UNIT,
        )  # fmt: skip

    total = column_of(added, COLUMNS - 1)
    some = total > 0
    share = tl.where(some, total, 1.0)[:, None]
    place, stored = result_places(begin + row, member, live, some, tokens, GROUP, PARTS)
    to = out + place[:, None] * (2 * PLANE) + 2 * tl.arange(0, HALF)[None, :]
    for pair in tl.static_range(PAIRS):
        for plane in tl.static_range(2):
            least = column_of(added, plane * PAIRS + pair)[:, None]
            for odd in tl.static_range(2):
                numbers = sums[4 * pair + 2 * plane + odd] * (UNIT / 16**plane)
                numbers = (numbers + least) / share
                tl.store(
                    to + (plane * PAIRS + pair) * 2 * HALF + odd, numbers.to(out.dtype.element_ty), mask=stored[:, None]
                )
    if LSE:
        store_lse(lse_out, place, most, total / VALUES, live)
    if MERGED > 0:
        merge_if_last(out, lse_out, merged, merged_lse, arrived, begin, rows, tokens, GROUP, 2 * PLANE, MERGED_ROWS,
                      MERGED_COLUMNS, MERGED, MERGED_LSE)  # fmt: skip
