"""Attention of a few rows over keys and values of 8 bits, unpacked in registers on the way to tensor cores.

As `kernels.attend` for decoding, which turns each code into a number of 16 bits by several instructions. Here two codes
that lie side by side are a halfword: one instruction makes a pair of float16 of the first codes of two halfwords and
two of the second (as MARLIN does with weights, arXiv 2408.11743). So even and odd channels are two products. A float16
holds 1152 + code, which sums undo; it asks for queries within float16, so that each row is divided by its largest.

Importing this needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

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

VALUES = tl.constexpr(64.0)
"""Factor of the products of weights and values' scales, so that few are smaller than float16 holds in full."""
ONES = tl.constexpr(16)
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
def _block(block, most, total, ones, even, odd, query, query_odd, added, factor, limit, length, live, table,
           k, v, k_meta, v_meta, k_slot, v_slot, heads,
           HALF: tl.constexpr, BN: tl.constexpr, MASKED: tl.constexpr, ASM: tl.constexpr,
           MAGIC: tl.constexpr):  # fmt: skip
    """The running softmax and sums after a block of keys. Not MASKED: every row sees all of it."""
    NUMBER: tl.constexpr = query.dtype
    key, known, slot = slots_of(table, block, length, BN, MASKED)
    lane = tl.arange(0, HALF)
    first, second = _numbers(tl.trans(tl.load(k + slot[:, None] * k_slot + lane[None, :])), ASM, MAGIC, NUMBER)
    scores = tl.dot(query, first, input_precision="ieee")
    scores = tl.dot(query_odd, second, scores, input_precision="ieee")
    if MASKED:
        k_scale = tl.load(k_meta + slot * heads, mask=known, other=0.0).to(tl.float32)
        v_scale = tl.load(v_meta + slot * heads, mask=known, other=0.0).to(tl.float32)
    else:
        k_scale = tl.load(k_meta + slot * heads).to(tl.float32)
        v_scale = tl.load(v_meta + slot * heads).to(tl.float32)
    scores = (scores - added[:, None]) * factor[:, None] * k_scale[None, :]
    if MASKED:
        scores = tl.where((key[None, :] < limit[:, None]) & live[:, None], scores, float("-inf"))
    more = tl.maximum(most, tl.max(scores, 1))
    base = more
    if MASKED:
        base = tl.where(more == float("-inf"), 0.0, more)
    weights = tl.exp2(scores - base[:, None])
    shrink = tl.exp2(most - base)
    total = total * shrink + tl.sum(weights, 1)
    weights = (weights * (v_scale * VALUES)[None, :]).to(NUMBER)
    if MAGIC != 0.0:
        ones = tl.dot(weights, tl.full((BN, ONES), 1.0, NUMBER), ones * shrink[:, None], input_precision="ieee")
    first, second = _numbers(tl.load(v + slot[:, None] * v_slot + lane[None, :]), ASM, MAGIC, NUMBER)
    even = tl.dot(weights, first, even * shrink[:, None], input_precision="ieee")
    odd = tl.dot(weights, second, odd * shrink[:, None], input_precision="ieee")
    return more, total, ones, even, odd


@triton.jit(do_not_specialize=["tokens", "table_row", "ahead_bytes"], do_not_specialize_on_alignment=TABLES)
def attend_bytes(q, k, v, k_meta, v_meta, table, row_start, kv_len, out, lse_out, merged, merged_lse, arrived,
                 new_k, new_v, cos, sin, turns, slots, scale, tokens,
                 q_row, q_head, k_slot, k_head, v_slot, v_head, table_row,
                 new_k_row, new_k_head, new_v_row, new_v_head, turn_row, ahead, ahead_bytes,
                 GROUP: tl.constexpr, HALF: tl.constexpr, ASM: tl.constexpr, MAGIC: tl.constexpr,
                 LSE: tl.constexpr, PARTS: tl.constexpr, MERGED: tl.constexpr, MERGED_ROWS: tl.constexpr,
                 MERGED_COLUMNS: tl.constexpr, MERGED_LSE: tl.constexpr, WRITES: tl.constexpr, ROTARY: tl.constexpr,
                 LOOKED_UP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """Grid (S, H_kv, splits); at most BM rows times heads a sequence. Keys and values int16 ``[slots, H_kv, HALF]``,
    HALF a power of two; strides of them in int16. The rest as in `kernels.attend`."""
    begin, rows, length = enter_text(row_start, kv_len, ahead, ahead_bytes, EARLY)
    if rows == 0:
        return
    head, heads = tl.program_id(1), tl.num_programs(1)
    live, row, member = tile_rows(0, rows, GROUP, BM)
    limit, start, middle, end = keys_of_text(row, rows, length, BN)
    if WRITES:
        codes: tl.constexpr = tl.pointer_type(tl.int8)
        cos, sin = write_new(new_k, new_v, cos, sin, turns, slots, k.to(codes, bitcast=True), v.to(codes, bitcast=True),
                             k_meta, v_meta, begin, (length - 1) // BN, start, end, new_k_row, new_k_head, new_v_row,
                             new_v_head, turn_row, "int8", 2 * HALF, 2 * HALF, ROTARY, LOOKED_UP, 1, 1, 2 * HALF,
                             2 * HALF)  # fmt: skip

    lane = tl.arange(0, HALF)
    at = q + ((begin + row).to(tl.int64) * q_row + (head * GROUP + member) * q_head)[:, None]
    query = rotated(at, cos, sin, 2 * lane[None, :], live[:, None], ROTARY)
    query_odd = rotated(at, cos, sin, 2 * lane[None, :] + 1, live[:, None], ROTARY)
    factor = tl.maximum(tl.max(tl.abs(query), 1), tl.max(tl.abs(query_odd), 1))
    factor = tl.where(factor > 0, factor, 1.0)
    NUMBER: tl.constexpr = tl.float32 if q.dtype.element_ty == tl.float32 else tl.float16
    query, query_odd = (query / factor[:, None]).to(NUMBER), (query_odd / factor[:, None]).to(NUMBER)
    added = (tl.sum(query.to(tl.float32), 1) + tl.sum(query_odd.to(tl.float32), 1)) * MAGIC
    factor *= scale * LOG2E
    table += tl.program_id(0) * table_row
    k += head * k_head
    v += head * v_head
    k_meta += head
    v_meta += head
    most = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    ones = tl.zeros((BM, ONES), tl.float32)
    even = tl.zeros((BM, HALF), tl.float32)
    odd = tl.zeros((BM, HALF), tl.float32)
    for block in range(start, middle):
        most, total, ones, even, odd = _block(
            block, most, total, ones, even, odd, query, query_odd, added, factor, limit, length, live, table,
            k, v, k_meta, v_meta, k_slot, v_slot, heads, HALF, BN, False, ASM, MAGIC,
        )  # fmt: skip
    for block in range(middle, end):
        most, total, ones, even, odd = _block(
            block, most, total, ones, even, odd, query, query_odd, added, factor, limit, length, live, table,
            k, v, k_meta, v_meta, k_slot, v_slot, heads, HALF, BN, True, ASM, MAGIC,
        )  # fmt: skip

    some = total > 0
    share = tl.where(some, total, 1.0)
    # Every column of the product with ones is the same.
    too_much = tl.max(ones, 1) * MAGIC
    even = (even - too_much[:, None]) / (share * VALUES)[:, None]
    odd = (odd - too_much[:, None]) / (share * VALUES)[:, None]
    place, stored = result_places(begin + row, member, live, some, tokens, GROUP, PARTS)
    to = out + place[:, None] * (2 * HALF) + 2 * lane[None, :]
    tl.store(to, even.to(out.dtype.element_ty), mask=stored[:, None])
    tl.store(to + 1, odd.to(out.dtype.element_ty), mask=stored[:, None])
    if LSE:
        store_lse(lse_out, place, most, total, live)
    if MERGED > 0:
        merge_if_last(out, lse_out, merged, merged_lse, arrived, begin, rows, tokens, GROUP, 2 * HALF, MERGED_ROWS,
                      MERGED_COLUMNS, MERGED, MERGED_LSE)  # fmt: skip
