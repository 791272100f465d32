"""Attention of a few rows over keys and values of 8 bits, unpacked in registers on the way to tensor cores.

As `kernels.attend` for decoding, which turns each code into a number of 16 bits by several instructions. Here two codes
that lie side by side are a halfword: one instruction makes a pair of float16 of the first codes of two halfwords and
two of the second (as MARLIN does with weights, arXiv 2408.11743). So even and odd channels are two products. A float16
holds 1152 + code, which sums undo; it asks for queries within float16, so that each row is divided by its largest.
What is the same for all keys of a turn, or all channels of a key, is done once: each warp has keys of its own, sums of
weights are products with ones, and a factor of a row meets the largest score and the exponent alone.

Importing this needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.compute.attention.triton.pack_kernels import rotated
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
    of_warps,
    result_places,
    scaled,
    shares_of_warps,
    store_lse,
    tile_rows,
    warps_slots,
    weights_of,
    write_new,
)

VALUES = tl.constexpr(6.0)
"""Weights are 2^6 times too large, so that few of their products with values' scales are smaller than float16 holds in
full."""
ONES = tl.constexpr(8)
"""Columns of a product with ones, which is the sum of the rounded weights: as few as tensor cores have."""


@triton.jit
def _numbers(words, ASM: tl.constexpr, MAGIC: tl.constexpr, NUMBER: tl.constexpr):
    """int16 of two codes each -> the first and the second, MAGIC too large."""
    if ASM != "":
        low, high = tl.inline_asm_elementwise(
            ASM, "=r,=r,r", [words], dtype=(tl.float16, tl.float16), is_pure=True, pack=2
        )
    else:
        low = words.to(tl.int8).to(NUMBER) + MAGIC
        high = (words >> 8).to(NUMBER) + MAGIC
    return low, high


@triton.jit
def _words(at, places, HALF: tl.constexpr, LANES: tl.constexpr):
    """[.., LANES] int16 of the heads that begin at ``places`` from the first, 0 beyond HALF."""
    lane = tl.arange(0, LANES)
    place = (at + lane) + tl.expand_dims(places, -1)
    if LANES > HALF:
        words = tl.load(place, mask=lane < HALF, other=0)
    else:
        words = tl.load(place)
    return words


@triton.jit
def _block(block, most, total, added, even, odd, query, query_odd, less, factor, limit, length, masked, table,
           k, v, k_meta, v_meta, stride, heads,
           HALF: tl.constexpr, LANES: tl.constexpr, WARPS: tl.constexpr, BN: tl.constexpr, ASM: tl.constexpr,
           MAGIC: tl.constexpr):  # fmt: skip
    """The running softmax and sums after a block of keys: each warp's after its own, of one all warps'."""
    NUMBER: tl.constexpr = query.dtype
    EACH: tl.constexpr = BN // WARPS
    key, known, slot = warps_slots(table, block, length, WARPS, BN)
    words, at = far(slot, stride, ALIGNED), far(slot, heads, 1)
    first, second = _numbers(tl.trans(_words(k, words, HALF, LANES)), ASM, MAGIC, NUMBER)
    scores = of_warps(tl.broadcast_to(-less[:, None], (less.shape[0], EACH)), WARPS)
    scores = tl.dot(query, first, scores, input_precision="ieee")
    scores = tl.dot(query_odd, second, scores, input_precision="ieee")
    scores *= tl.expand_dims(tl.load(k_meta + at).to(tl.float32), -2)
    most, weights, shrink = weights_of(scores, most, factor, key, limit, masked, VALUES, NUMBER)
    ones = of_warps(tl.full((EACH, ONES), 1.0, NUMBER), WARPS)
    total = tl.dot(weights, ones, total * shrink, input_precision="ieee")
    weights = scaled(weights, tl.expand_dims(tl.load(v_meta + at, mask=known, other=0.0).to(NUMBER), -2), ASM)
    if MAGIC != 0.0:
        added = tl.dot(weights, ones, added * shrink, input_precision="ieee")
    first, second = _numbers(_words(v, words, HALF, LANES), ASM, MAGIC, NUMBER)
    even = tl.dot(weights, first, even * shrink, input_precision="ieee")
    odd = tl.dot(weights, second, odd * shrink, input_precision="ieee")
    return most, total, added, even, odd


@triton.jit(do_not_specialize=["tokens", "table_row", "ahead_bytes"], do_not_specialize_on_alignment=TABLES)
def attend_bytes(q, k, v, k_meta, v_meta, table, row_start, kv_len, out, lse_out, merged, merged_lse, arrived,
                 new_k, new_v, cos, sin, turns, slots, scale, tokens,
                 q_row, q_head, stride, head_stride, table_row,
                 new_k_row, new_k_head, new_v_row, new_v_head, turn_row, ahead, ahead_bytes,
                 GROUP: tl.constexpr, HALF: tl.constexpr, LANES: tl.constexpr, WARPS: tl.constexpr,
                 ASM: tl.constexpr, MAGIC: tl.constexpr, LSE: tl.constexpr, PARTS: tl.constexpr,
                 MERGED: tl.constexpr, MERGED_ROWS: tl.constexpr, MERGED_COLUMNS: tl.constexpr,
                 MERGED_LSE: tl.constexpr, WRITES: tl.constexpr, ROTARY: tl.constexpr, LOOKED_UP: tl.constexpr,
                 BM: tl.constexpr, BN: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """Grid (S, H_kv, splits); at most BM rows times heads a sequence. Keys and values int16 ``[slots, H_kv, HALF]``,
    LANES a power of two that is not less; strides of them, of keys as of values, in int16. WARPS: each of as many has
    its part of a block's keys and a softmax of its own, so that none waits for another before the end; 1: all of them
    have one. The rest as in `kernels.attend`."""
    begin, rows, length = enter_text(row_start, kv_len, ahead, ahead_bytes, EARLY)
    if rows == 0:
        return
    head, heads = tl.program_id(1), tl.num_programs(1)
    live, row, member = tile_rows(0, rows, GROUP, BM)
    limit, start, end, whole = keys_of_text(row, rows, length, BN)
    if WRITES:
        codes: tl.constexpr = tl.pointer_type(tl.int8)
        cos, sin = write_new(new_k, new_v, cos, sin, turns, slots, k.to(codes, bitcast=True), v.to(codes, bitcast=True),
                             k_meta, v_meta, begin, (length - 1) // BN, start, end, new_k_row, new_k_head, new_v_row,
                             new_v_head, turn_row, "int8", 2 * HALF, 2 * HALF, ROTARY, LOOKED_UP, 1, 1, 2 * LANES,
                             2 * LANES)  # fmt: skip

    lane = tl.arange(0, LANES)
    real = (lane < HALF)[None, :]
    at = q + ((begin + row).to(tl.int64) * q_row + (head * GROUP + member) * q_head)[:, None]
    query = rotated(at, cos, sin, 2 * lane[None, :], live[:, None] & real, ROTARY)
    query_odd = rotated(at, cos, sin, 2 * lane[None, :] + 1, live[:, None] & real, ROTARY)
    factor = tl.maximum(tl.max(tl.abs(query), 1), tl.max(tl.abs(query_odd), 1))
    factor = tl.where(factor > 0, factor, 1.0)
    NUMBER: tl.constexpr = tl.float32 if q.dtype.element_ty == tl.float32 else tl.float16
    query, query_odd = (query / factor[:, None]).to(NUMBER), (query_odd / factor[:, None]).to(NUMBER)
    less = (tl.sum(query.to(tl.float32), 1) + tl.sum(query_odd.to(tl.float32), 1)) * MAGIC
    factor *= scale * LOG2E
    table += tl.program_id(0) * table_row
    k += tl.multiple_of(head * head_stride, ALIGNED)
    v += tl.multiple_of(head * head_stride, ALIGNED)
    k_meta += head
    v_meta += head
    most = tl.full((BM,), LOWEST, tl.float32)
    total, added = tl.zeros((BM, ONES), tl.float32), tl.zeros((BM, ONES), tl.float32)
    even, odd = tl.zeros((BM, LANES), tl.float32), tl.zeros((BM, LANES), tl.float32)
    query, query_odd = of_warps(query, WARPS), of_warps(query_odd, WARPS)
    most, total, added = of_warps(most, WARPS), of_warps(total, WARPS), of_warps(added, WARPS)
    even, odd = of_warps(even, WARPS), of_warps(odd, WARPS)
    for block in range(start, end):
        most, total, added, even, odd = _block(
            block, most, total, added, even, odd, query, query_odd, less, factor, limit, length, block >= whole, table,
            k, v, k_meta, v_meta, stride, heads, HALF, LANES, WARPS, BN, ASM, MAGIC,
        )  # fmt: skip

    # Every column of the products with ones is the same.
    total, added = tl.max(total, -1), tl.max(added, -1)
    numbers = neighbours(even, odd)
    if WARPS > 1:
        most, share = shares_of_warps(most)
        total, added, numbers = (
            tl.sum(total * share, 0),
            tl.sum(added * share, 0),
            tl.sum(numbers * share[:, :, None], 0),
        )
    some = total > 0
    numbers = (numbers - (added * MAGIC)[:, None]) / tl.where(some, total, 1.0)[:, None]
    place, stored = result_places(begin + row, member, live, some, tokens, GROUP, PARTS)
    channel = tl.arange(0, 2 * LANES)[None, :]
    tl.store(out + place[:, None] * (2 * HALF) + channel, numbers.to(out.dtype.element_ty),
             mask=stored[:, None] & (channel < 2 * HALF))  # fmt: skip
    if LSE:
        store_lse(lse_out, place, most, total, live)
    if MERGED > 0:
        merge_if_last(out, lse_out, merged, merged_lse, arrived, begin, rows, tokens, GROUP, 2 * HALF, MERGED_ROWS,
                      MERGED_COLUMNS, MERGED, MERGED_LSE)  # fmt: skip
