"""Attention over pages, where they lie, with the running softmax of FlashAttention (Dao et al. 2022), and its merge.

A tile is BM rows of one sequence and one KV head: row ``m`` is query head ``m % GROUP`` of the KV head's and new row
``m // GROUP`` of the sequence's, so keys are read once for all heads that share them (Ainslie et al. 2023). One kernel
serves decoding, drafted chains and trees, and prompts; where there are few tiles, the keys are split over programs,
each of which gives (o, lse), and :func:`combine` merges them (Flash-Decoding, Dao et al. 2023), or the last of them to
end. Where a split ends follows from the length on the device, so the grid may stay while lengths grow. While answers
are written, a program may also rotate its queries, and write the new key and value that it is about to read.

Importing this needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.compute.attention.triton import loads
from engine.compute.attention.triton.pack_kernels import rotated
from engine.compute.attention.triton.tile_kernels import (
    LOG2E,
    PAGE,
    TABLES,
    merge_if_last,
    result_places,
    slots_of,
    split_of,
    store_lse,
    tile_of,
    tile_rows,
    write_new,
)
from engine.compute.native.early_kernels import enter, fetch_ahead, fetch_each, let_in, wait

FAR = tl.constexpr(2147483647)


@triton.jit
def bounds(row, index, begin, window, first, stop, positions, WINDOW: tl.constexpr, TREE: tl.constexpr,
           FIRST: tl.constexpr, STOP: tl.constexpr):  # fmt: skip
    """A row sees keys up to its own index whose positions are from its bottom to below its limit, at most.

    A key's position is its index, and that of a new row of a tree its depth below the root: no more than its index.
    """
    bottom, limit, position = index * 0, index + 1, index
    if WINDOW:
        if TREE:
            position = tl.load(positions + begin + row).to(tl.int32)
        bottom = tl.maximum(position - window + 1, 0)
    if FIRST:
        bottom = tl.maximum(bottom, tl.load(first + begin + row))
    if STOP:
        limit = tl.minimum(limit, tl.load(stop + begin + row))
    return bottom, limit


@triton.jit
def seen_in_tree(key, prefix, length, begin, index, bottom, limit, bits, positions):
    """Mask [BM, BN] of the keys that rows see within their bounds: the prefix and, of the new rows, their ancestors."""
    new = key >= prefix
    at = tl.load(positions + begin + key - prefix, mask=new & (key < length), other=0).to(tl.int32)
    at = tl.where(new, at, key)[None, :]
    shift = tl.minimum(tl.maximum(key - prefix, 0), 63).to(tl.int64)
    ancestor = (bits == -1)[:, None] | (((bits[:, None] >> shift[None, :]) & 1) != 0)
    own = (key[None, :] <= index[:, None]) & ((new == 0)[None, :] | ancestor)
    return own & (at >= bottom[:, None]) & (at < limit[:, None])


@triton.jit
def capped(scores, softcap):
    """``softcap * tanh(scores / softcap)``."""
    return softcap * (1.0 - 2.0 / (tl.exp(2.0 * scores / softcap) + 1.0))


@triton.jit
def first_slots(table, length, BN: tl.constexpr):
    """Slots of the first keys of a program that attends to a part of a whole text. (What is fetched of them into the
    level-2 cache may be written still: that is where it is written.)"""
    start, _ = split_of(0, tl.cdiv(length, BN))
    _, _, slot = slots_of(table, start, length, BN)
    return slot


PLAIN = ["sequences", "tokens", "window", "table_row", "ahead_bytes"]


@triton.jit(do_not_specialize=PLAIN, do_not_specialize_on_alignment=TABLES)
def attend(q, k, v, k_meta, v_meta, table, row_start, kv_len, first, stop, ancestors, positions,
           out, lse_out, merged, merged_lse, arrived, new_k, new_v, cos, sin, turns, slots,
           scale, softcap, window, sequences, tokens,
           q_row, q_head, k_slot, k_head, v_slot, v_head, table_row,
           new_k_row, new_k_head, new_v_row, new_v_head, turn_row, ahead, ahead_bytes,
           KIND: tl.constexpr, GROUP: tl.constexpr, K_DIM: tl.constexpr, V_DIM: tl.constexpr,
           K_BITS: tl.constexpr, V_BITS: tl.constexpr, K_GROUP: tl.constexpr, V_GROUP: tl.constexpr,
           K_LANES: tl.constexpr, V_LANES: tl.constexpr, K_REST: tl.constexpr, V_REST: tl.constexpr,
           SHARED: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, TREE: tl.constexpr,
           FIRST: tl.constexpr, STOP: tl.constexpr, SEARCH: tl.constexpr, LSE: tl.constexpr, PARTS: tl.constexpr,
           MERGED: tl.constexpr, MERGED_ROWS: tl.constexpr, MERGED_COLUMNS: tl.constexpr,
           MERGED_LSE: tl.constexpr, WRITES: tl.constexpr, ROTARY: tl.constexpr, LOOKED_UP: tl.constexpr,
           BM: tl.constexpr, BN: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """Grid (tiles, H_kv, splits). ``out [T, H, V_DIM]`` in any dtype and ``lse_out [T, H]`` float32; with PARTS both
    have a first dimension, the splits, and parts in which a row sees nothing have no ``out``.

    SHARED: values are the first channels of the keys. K_BITS and V_BITS: 16 for numbers, 8, 4 or 2 for codes.

    MERGED: not 0, and no fewer than the splits, of tiles of at most MERGED_ROWS rows, one for each sequence. The last
    program of a tile to end merges its parts into ``merged`` and, with MERGED_LSE, ``merged_lse``, see
    :func:`tile_kernels.merge_if_last`. WRITES: sequences have one row each,
    or none; q and ``new_k [T, H_kv, K_DIM]`` are not rotated yet, and this row's key and value not yet written, see
    :func:`pack_kernels.write`. LOOKED_UP: the rotation of a row is in the row of ``cos`` and ``sin`` that ``turns [T]``
    int64 says. EARLY: ``row_start``, ``kv_len`` and ``table`` are the step's own, and no kernel of it writes them.
    """
    if EARLY:
        let_in()
        fetch_ahead(ahead, ahead_bytes)
    DTYPE: tl.constexpr = q.dtype.element_ty
    head, heads = tl.program_id(1), tl.num_programs(1)
    if SEARCH:
        sequence, tile = tile_of(tl.program_id(0), row_start, sequences, GROUP, BM)
    else:
        sequence, tile = tl.program_id(0), 0
    begin = tl.load(row_start + sequence)
    rows = tl.load(row_start + sequence + 1) - begin
    if EARLY:
        length = tl.load(kv_len + sequence)
        if KIND == "dense" and not WINDOW:
            slots_before = first_slots(table + sequence * table_row, length, BN)
            fetch_each(k + slots_before * k_slot + head * k_head, K_DIM * k.dtype.element_ty.primitive_bitwidth // 8)
            fetch_each(v + slots_before * v_slot + head * v_head, V_DIM * v.dtype.element_ty.primitive_bitwidth // 8)
        wait()
    if tile * BM >= rows * GROUP:
        return
    if not EARLY:
        length = tl.load(kv_len + sequence)
    prefix = length - rows
    live, row, member = tile_rows(tile, rows, GROUP, BM)
    index = prefix + row
    bottom, limit = bounds(row, index, begin, window, first, stop, positions, WINDOW, TREE, FIRST, STOP)
    sees = live & (limit > bottom)
    top = limit
    if TREE:
        top = index + 1
    low, high = tl.min(tl.where(sees, bottom, FAR)), tl.max(tl.where(sees, top, 0))
    low = tl.minimum(low, high)
    start, end = split_of(low // BN, tl.cdiv(high, BN))

    if WRITES:
        cos, sin = write_new(new_k, new_v, cos, sin, turns, slots, k, v, k_meta, v_meta, begin, (length - 1) // BN,
                             start, end, new_k_row, new_k_head, new_v_row, new_v_head, turn_row, KIND, K_DIM, V_DIM,
                             ROTARY, LOOKED_UP, K_GROUP, V_GROUP, 2 * K_LANES if K_REST > 0 else K_LANES,
                             2 * V_LANES if V_REST > 0 else V_LANES)  # fmt: skip

    K_PLANES: tl.constexpr = 8 // K_BITS if K_BITS < 8 else 1
    V_PLANES: tl.constexpr = 8 // V_BITS if V_BITS < 8 else 1
    token_head = (begin + row).to(tl.int64) * q_row + (head * GROUP + member) * q_head
    channel, real = loads.channels(K_DIM, K_PLANES, K_LANES)
    if WRITES:
        query = rotated((q + token_head)[:, None], cos, sin, channel[None, :], live[:, None] & real[None, :], ROTARY)
        query = query.to(DTYPE)
    else:
        query = tl.load(q + token_head[:, None] + channel[None, :], mask=live[:, None] & real[None, :], other=0.0)
    if K_REST > 0:
        rest = K_LANES + tl.arange(0, K_REST)
        query_rest = tl.load(q + token_head[:, None] + rest[None, :], mask=live[:, None] & (rest < K_DIM)[None, :],
                             other=0.0)  # fmt: skip
    if TREE:
        bits = tl.load(ancestors + begin + row)
    table += sequence * table_row
    most = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, V_PLANES * V_LANES), tl.float32)
    if V_REST > 0:
        acc_rest = tl.zeros((BM, V_REST), tl.float32)
    for block in range(start, end):
        key, known, slot = slots_of(table, block, high, BN)
        k_at = k + head * k_head
        if KIND == "kivi":
            even = tl.load(table + block * 2).to(tl.int64)
            # (A table may end before the pair of its last page.)
            odd = tl.load(table + block * 2 + 1, mask=block * BN + PAGE < high, other=0).to(tl.int64)
            codes = loads.planes(k_at, slot, k_slot, K_DIM, K_BITS, K_LANES, BN)
            keys = loads.channel_groups(codes, k_meta + head * K_DIM, even, odd, heads * K_DIM, K_DIM, K_BITS, K_LANES)
        else:
            keys = loads.of_head(k_at, k_meta, slot, k_slot, head, heads, KIND, K_DIM, K_BITS, K_GROUP, K_LANES, BN)
        keys = keys.to(DTYPE)
        scores = tl.dot(query, tl.trans(keys), input_precision="ieee")
        if K_REST > 0:
            keys_rest = loads.numbers(k_at + K_LANES, slot, k_slot, K_DIM - K_LANES, K_REST)
            scores = tl.dot(query_rest, tl.trans(keys_rest), scores, input_precision="ieee")
        scores *= scale
        if KIND == "int8" or KIND == "fp8":
            scores *= loads.byte_scales(k_meta + head, slot, heads, KIND)[None, :]
        if SOFTCAP:
            scores = capped(scores, softcap)
        scores *= LOG2E
        if TREE:
            # Rows see all of the prefix where nothing bounds them, and masks of trees cost more than all else.
            if WINDOW or FIRST or STOP or (block + 1) * BN > prefix:
                seen = seen_in_tree(key, prefix, length, begin, index, bottom, limit, bits, positions)
                scores = tl.where(seen & live[:, None], scores, float("-inf"))
        else:
            seen = (key[None, :] < limit[:, None]) & (key[None, :] >= bottom[:, None])
            scores = tl.where(seen & live[:, None], scores, float("-inf"))
        more = tl.maximum(most, tl.max(scores, 1))
        base = tl.where(more == float("-inf"), 0.0, more)
        weights = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(most - base)
        total = total * shrink + tl.sum(weights, 1)
        most = more
        v_at = v + head * v_head
        known = known & (key >= low)
        if SHARED:
            values = keys
        else:
            values = loads.of_head(v_at, v_meta, slot, v_slot, head, heads, KIND, V_DIM, V_BITS, V_GROUP, V_LANES, BN)
            values = values.to(DTYPE)
        if KIND == "int8" or KIND == "fp8":
            weights *= loads.byte_scales(v_meta + head, slot, heads, KIND)[None, :]
        elif KIND == "dense":
            # Keys that no row sees may be anything, and 0 * NaN is NaN.
            values = tl.where(known[:, None], values, 0.0)
        weights = weights.to(DTYPE)
        acc = tl.dot(weights, values, acc * shrink[:, None], input_precision="ieee")
        if V_REST > 0:
            values_rest = loads.numbers(v_at + V_LANES, slot, v_slot, V_DIM - V_LANES, V_REST)
            values_rest = tl.where(known[:, None], values_rest, 0.0)
            acc_rest = tl.dot(weights, values_rest, acc_rest * shrink[:, None], input_precision="ieee")

    some = total > 0
    share = tl.where(some, total, 1.0)[:, None]
    place, stored = result_places(begin + row, member, live, some, tokens, GROUP, PARTS)
    channel, real = loads.channels(V_DIM, V_PLANES, V_LANES)
    at = out + place[:, None] * V_DIM
    tl.store(at + channel[None, :], (acc / share).to(out.dtype.element_ty), mask=stored[:, None] & real[None, :])
    if V_REST > 0:
        rest = V_LANES + tl.arange(0, V_REST)
        tl.store(at + rest[None, :], (acc_rest / share).to(out.dtype.element_ty),
                 mask=stored[:, None] & (rest < V_DIM)[None, :])  # fmt: skip
    if LSE:
        store_lse(lse_out, place, most, total, live)
    if MERGED > 0:
        tl.static_assert(PARTS & (V_REST == 0) & (not SEARCH))
        merge_if_last(out, lse_out, merged, merged_lse, arrived, begin, rows, tokens, GROUP, V_DIM, MERGED_ROWS,
                      MERGED_COLUMNS, MERGED, MERGED_LSE)  # fmt: skip


@triton.jit(do_not_specialize=["tokens", "splits", "ahead_bytes"])
def combine(parts, lses, out, lse_out, tokens, splits, ahead, ahead_bytes, V_DIM: tl.constexpr, COLUMNS: tl.constexpr,
            MOST: tl.constexpr, LSE: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """Grid (T, H): ``parts [splits, T, H, V_DIM]`` and ``lses [splits, T, H]``, float32 -> out, lse_out; MOST splits.

    A part whose lse is -inf is not read: nobody wrote it.
    """
    if EARLY:
        enter(ahead, ahead_bytes)
    place = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    split = tl.arange(0, MOST)
    at = split.to(tl.int64) * tokens * tl.num_programs(1) + place
    column = tl.arange(0, COLUMNS)
    lse = tl.load(lses + at, mask=split < splits, other=float("-inf"))
    most = tl.max(lse, 0)
    base = tl.where(most == float("-inf"), 0.0, most)
    weight = tl.exp(lse - base)
    total = tl.sum(weight, 0)
    used = (lse > float("-inf"))[:, None] & (column < V_DIM)[None, :]
    part = tl.load(parts + at[:, None] * V_DIM + column[None, :], mask=used, other=0.0)
    o = tl.sum(part * weight[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(out + place * V_DIM + column, o.to(out.dtype.element_ty), mask=column < V_DIM)
    if LSE:
        lse = tl.where(total > 0, base + tl.log(tl.where(total > 0, total, 1.0)), float("-inf"))
        tl.store(lse_out + place, lse)
