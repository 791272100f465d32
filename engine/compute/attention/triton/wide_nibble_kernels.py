"""Attention of a few rows over keys and values of 4 bits in wide heads: as `nibble_kernels`, by one warp.

A warp would have more sums of 16 rows than registers: here scores have eight, as many columns as tensor cores have, and
weights are turned about on their way to the product with values.

Importing this needs Triton.
"""

# ruff: noqa: RUF005 - Triton has no starred tuples

from __future__ import annotations

import triton
import triton.language as tl

from engine.compute.attention.triton.nibble_kernels import (
    GROUP_OF,
    STRIP,
    column_of,
    four_codes,
    group_of,
    queries_of,
    store_part,
)
from engine.compute.attention.triton.tile_kernels import (
    ALIGNED,
    LOG2E,
    LOWEST,
    TABLES,
    enter_text,
    far,
    keys_of_text,
    merge_if_last,
    neighbours,
    result_places,
    store_lse,
    tile_rows,
    warps_slots,
    write_new,
)

COLUMNS = tl.constexpr(16)
"""Columns of products with minima, one for each group, as few as tensor cores have. The last one of values is 1, whose
product is the sum of the rounded weights."""
VALUES = tl.constexpr(16.0)
"""Factor of weights, so that few products with scales are smaller than float16 holds in full."""


@triton.jit
def _scales(at, known):
    """[BN, 1] float16 scales of int32 of a scale and a minimum each; of keys that are not ``known`` 0."""
    return tl.load(at, mask=known, other=0).to(tl.int16).to(tl.float16, bitcast=True)[:, None]


@triton.jit
def _minima(at, known, NUMBER: tl.constexpr):
    """[BN, COLUMNS] minima of the same."""
    return (tl.load(at, mask=known[:, None], other=0) >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(NUMBER)


@triton.jit
def _block(block, most, added, sums, queries, query_sums, factor, limit, length, masked, table,
           k, v, k_meta, v_meta, stride, meta_slot,
           WIDTH: tl.constexpr, BN: tl.constexpr, ASM: tl.constexpr, UNIT: tl.constexpr):  # fmt: skip
    """The running softmax and sums after a block of keys."""
    NUMBER: tl.constexpr = query_sums.dtype
    key, known, slot = warps_slots(table, block, length, 1, BN)
    words, metas = far(slot, stride, ALIGNED), far(slot, meta_slot, 1)
    GROUPS: tl.constexpr = WIDTH // GROUP_OF
    lane = tl.arange(0, STRIP)
    column = tl.arange(0, COLUMNS)
    at = metas[:, None] + (column % GROUPS)[None, :]
    lowest = tl.dot(_minima(k_meta + at, known, NUMBER), query_sums, input_precision="ieee")
    scores = tl.zeros((BN, limit.shape[0]), tl.float32)
    for pair in tl.static_range(GROUPS // 2):
        halfwords = tl.load(k + words[:, None] + pair * STRIP + lane[None, :])
        even_low, odd_low, even_high, odd_high = four_codes(halfwords, ASM, NUMBER)
        low = tl.dot(even_low, queries[4 * pair], input_precision="ieee")
        low = tl.dot(odd_low, queries[4 * pair + 1], low, input_precision="ieee")
        high = tl.dot(even_high, queries[4 * pair + 2], input_precision="ieee")
        high = tl.dot(odd_high, queries[4 * pair + 3], high, input_precision="ieee")
        scale_at = k_meta + metas + pair
        scores += low * _scales(scale_at, known).to(tl.float32)
        scores += high * _scales(scale_at + GROUPS // 2, known).to(tl.float32)
    scores = scores * (factor * UNIT)[None, :] + lowest * factor[None, :]
    if masked:
        scores = tl.where(key[:, None] < limit[None, :], scores, float("-inf"))
    more = tl.maximum(most, tl.max(scores, 0))
    weights = (tl.exp2(scores - more[None, :]) * VALUES).to(NUMBER)
    shrink = tl.exp2(most - more)
    least = tl.where((column == COLUMNS - 1)[None, :], 1.0, _minima(v_meta + at, known, NUMBER))
    added = tl.dot(tl.trans(weights), least, added * shrink[:, None], input_precision="ieee")
    result = ()
    for pair in tl.static_range(GROUPS // 2):
        halfwords = tl.load(v + words[:, None] + pair * STRIP + lane[None, :])
        even_low, odd_low, even_high, odd_high = four_codes(halfwords, ASM, NUMBER)
        scale_at = v_meta + metas + pair
        low = tl.trans(weights * _scales(scale_at, known).to(NUMBER))
        high = tl.trans(weights * _scales(scale_at + GROUPS // 2, known).to(NUMBER))
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
                   GROUP: tl.constexpr, WIDTH: tl.constexpr, ASM: tl.constexpr, UNIT: tl.constexpr,
                   LSE: tl.constexpr, PARTS: tl.constexpr, MERGED: tl.constexpr, MERGED_ROWS: tl.constexpr,
                   MERGED_COLUMNS: tl.constexpr, MERGED_LSE: tl.constexpr, WRITES: tl.constexpr, ROTARY: tl.constexpr,
                   LOOKED_UP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """Grid (S, H_kv, splits); at most BM rows times heads a sequence. Keys and values int16 ``[slots, H_kv, WIDTH /
    4]``, WIDTH a multiple of 64; strides of them in int16. The rest as in `kernels.attend`."""
    begin, rows, length = enter_text(row_start, kv_len, ahead, ahead_bytes, EARLY)
    if rows == 0:
        return
    GROUPS: tl.constexpr = WIDTH // GROUP_OF
    head, heads = tl.program_id(1), tl.num_programs(1)
    live, row, member = tile_rows(0, rows, GROUP, BM)
    limit, start, end, whole = keys_of_text(row, rows, length, BN)
    if WRITES:
        codes: tl.constexpr = tl.pointer_type(tl.uint8)
        cos, sin = write_new(new_k, new_v, cos, sin, turns, slots, k.to(codes, bitcast=True), v.to(codes, bitcast=True),
                             k_meta, v_meta, begin, (length - 1) // BN, start, end, new_k_row, new_k_head, new_v_row,
                             new_v_head, turn_row, "int4", WIDTH, WIDTH, ROTARY, LOOKED_UP, GROUP_OF, GROUP_OF,
                             WIDTH // 2, WIDTH // 2)  # fmt: skip

    NUMBER: tl.constexpr = tl.float32 if q.dtype.element_ty == tl.float32 else tl.float16
    at = q + (begin + row).to(tl.int64) * q_row + (head * GROUP + member) * q_head
    factor, found, totals = queries_of(at, cos, sin, live, WIDTH, 1, 1.0, ROTARY, NUMBER)
    queries = ()
    column = tl.arange(0, COLUMNS)[:, None]
    query_sums = tl.zeros((COLUMNS, BM), tl.float32)
    for part in tl.static_range(GROUPS):
        queries = queries + (tl.trans(found[2 * part]), tl.trans(found[2 * part + 1]))  # type: ignore[assignment]
        # A sum is a float16 and what that leaves.
        rounded = totals[part].to(NUMBER).to(tl.float32)
        query_sums += tl.where(column == group_of(part, WIDTH), rounded[None, :], 0.0)
        query_sums += tl.where(column == GROUPS + group_of(part, WIDTH), (totals[part] - rounded)[None, :], 0.0)
    query_sums = query_sums.to(NUMBER)
    factor *= scale * LOG2E
    table += tl.program_id(0) * table_row
    k += tl.multiple_of(head * head_stride, ALIGNED)
    v += tl.multiple_of(head * head_stride, ALIGNED)
    k_meta += head * GROUPS
    v_meta += head * GROUPS
    meta_slot = heads * GROUPS
    most = tl.full((BM,), LOWEST, tl.float32)
    added = tl.zeros((BM, COLUMNS), tl.float32)
    sums = ()
    for _ in tl.static_range(2 * GROUPS):
        sums = sums + (tl.zeros((BM, STRIP), tl.float32),)  # type: ignore[assignment]
    for block in range(start, end):
        most, added, sums = _block(
            block, most, added, sums, queries, query_sums, factor, limit, length, block >= whole, table,
            k, v, k_meta, v_meta, stride, meta_slot, WIDTH, BN, ASM, UNIT,
        )  # fmt: skip

    total = column_of(added, COLUMNS - 1)
    some = total > 0
    place, stored = result_places(begin + row, member, live, some, tokens, GROUP, PARTS)
    for part in tl.static_range(GROUPS):
        numbers = neighbours(sums[2 * part], sums[2 * part + 1])
        least = column_of(added, group_of(part, WIDTH))
        store_part(out + place * WIDTH, numbers, least, tl.where(some, total, 1.0), stored, part, WIDTH, UNIT)
    if LSE:
        store_lse(lse_out, place, most, total / VALUES, live)
    if MERGED > 0:
        merge_if_last(out, lse_out, merged, merged_lse, arrived, begin, rows, tokens, GROUP, WIDTH, MERGED_ROWS,
                      MERGED_COLUMNS, MERGED, MERGED_LSE)  # fmt: skip
