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
from engine.compute.attention.triton.pack_kernels import rotated_tile, write_head
from engine.compute.native.early_kernels import enter, fetch_ahead, fetch_each, let_in, wait

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
PAGE = tl.constexpr(16)
FAR = tl.constexpr(2147483647)


@triton.jit
def tile_of(place, row_start, sequences, GROUP: tl.constexpr, BM: tl.constexpr):
    """The sequence of a tile, and which of its tiles it is.

    Sequence s has those from ``row_start[s] * GROUP // BM + s`` on, at least as many as it needs (vLLM's Triton
    attention finds them so).
    """
    low, high = 0, sequences
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(row_start + middle) * GROUP // BM + middle <= place:
            low = middle
        else:
            high = middle
    return low, place - (tl.load(row_start + low) * GROUP // BM + low)


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
def merged_parts(parts, lses, out, lse_out, place, live, channel, real, each, splits, V_DIM: tl.constexpr,
                 COLUMNS: tl.constexpr, ROWS: tl.constexpr, MOST: tl.constexpr, LSE: tl.constexpr):  # fmt: skip
    """Rows ``place [ROWS]`` of out and lse_out as :func:`combine` merges them, of parts that are ``each`` rows apart.

    Other programs wrote them in this launch: nothing of them is taken from this multiprocessor's own cache. No load
    waits for another one.
    """
    split = tl.arange(0, MOST)
    at = split[None, :].to(tl.int64) * each + place[:, None]
    known = live[:, None] & (split < splits)[None, :]
    lse = tl.load(lses + at, mask=known, other=float("-inf"), cache_modifier=".cg")
    most = tl.max(lse, 1)
    base = tl.where(most == float("-inf"), 0.0, most)
    total = tl.sum(tl.exp(lse - base[:, None]), 1)
    acc = tl.zeros((ROWS, COLUMNS), tl.float32)
    for one in tl.static_range(MOST):
        own, there = one * each + place, live & (one < splits)
        weight = tl.load(lses + own, mask=there, other=float("-inf"), cache_modifier=".cg")
        part = tl.load(parts + own[:, None] * V_DIM + channel[None, :], mask=there[:, None] & real[None, :], other=0.0,
                       cache_modifier=".cg")  # fmt: skip
        # What nobody wrote may be anything, and 0 * NaN is NaN.
        acc += tl.where((weight > float("-inf"))[:, None], part, 0.0) * tl.exp(weight - base)[:, None]
    share = tl.where(total > 0, total, 1.0)
    o = (acc / share[:, None]).to(out.dtype.element_ty)
    tl.store(out + place[:, None] * V_DIM + channel[None, :], o, mask=live[:, None] & real[None, :])
    if LSE:
        tl.store(lse_out + place, tl.where(total > 0, base + tl.log(share), float("-inf")), mask=live)


@triton.jit
def first_slots(table, length, BN: tl.constexpr):
    """Slots of the first keys of a program that attends to a part of a whole text. (What is fetched of them into the
    level-2 cache may be written still: that is where it is written.)"""
    turn = tl.program_id(2) * tl.cdiv(tl.cdiv(length, BN), tl.num_programs(2))
    key = turn * BN + tl.arange(0, BN)
    return tl.load(table + key // PAGE, mask=key < length, other=0).to(tl.int64) * PAGE + key % PAGE


TABLES = ["table", "row_start", "kv_len", "first", "stop", "ancestors", "positions", "cos", "sin", "turns", "slots"]
"""Tensors read number by number: their alignment is no reason to compile another kernel."""


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
           MERGED: tl.constexpr, MERGED_ROWS: tl.constexpr, MERGED_LSE: tl.constexpr,
           WRITES: tl.constexpr, ROTARY: tl.constexpr,
           LOOKED_UP: tl.constexpr, NEW_K_GROUPS: tl.constexpr, NEW_V_GROUPS: tl.constexpr,
           NEW_K_LANES: tl.constexpr, NEW_V_LANES: tl.constexpr,
           BM: tl.constexpr, BN: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """Grid (tiles, H_kv, splits). ``out [T, H, V_DIM]`` in any dtype and ``lse_out [T, H]`` float32; with PARTS both
    have a first dimension, the splits, and parts in which a row sees nothing have no ``out``.

    SHARED: values are the first channels of the keys. K_BITS and V_BITS: 16 for numbers, 8, 4 or 2 for codes.

    MERGED: not 0, and no fewer than the splits, of tiles of at most MERGED_ROWS rows, one for each sequence. The last
    program of a tile to end, which the number of those before it in ``arrived [tiles, H_kv]`` int32 says, merges its
    parts into ``merged`` and, with MERGED_LSE, ``merged_lse``, and leaves 0 there. WRITES: sequences have one row each,
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
    m = tile * BM + tl.arange(0, BM)
    live = m < rows * GROUP
    row = tl.where(live, m // GROUP, 0)
    index = prefix + row
    bottom, limit = bounds(row, index, begin, window, first, stop, positions, WINDOW, TREE, FIRST, STOP)
    sees = live & (limit > bottom)
    top = limit
    if TREE:
        top = index + 1
    low, high = tl.min(tl.where(sees, bottom, FAR)), tl.max(tl.where(sees, top, 0))
    low = tl.minimum(low, high)
    first_block = low // BN
    each = tl.cdiv(tl.cdiv(high, BN) - first_block, tl.num_programs(2))
    start = first_block + tl.program_id(2) * each
    end = tl.minimum(start + each, tl.cdiv(high, BN))

    if WRITES:
        # The keys of one of the splits end with the new one: nobody else reads it.
        last = (length - 1) // BN
        turn = begin.to(tl.int64)
        if LOOKED_UP:
            turn = tl.load(turns + begin).to(tl.int64)
        cos += turn * turn_row
        sin += turn * turn_row
        if (last >= start) & (last < end):
            place = tl.load(slots + begin) * heads + head
            write_head(new_k + begin.to(tl.int64) * new_k_row + head * new_k_head,
                       new_v + begin.to(tl.int64) * new_v_row + head * new_v_head,
                       cos, sin, place, k, v, k_meta, v_meta, KIND, K_DIM, V_DIM, ROTARY, K_GROUP, V_GROUP,
                       NEW_K_GROUPS, NEW_V_GROUPS, NEW_K_LANES, NEW_V_LANES)  # fmt: skip
        tl.debug_barrier()

    K_PLANES: tl.constexpr = 8 // K_BITS if K_BITS < 8 else 1
    V_PLANES: tl.constexpr = 8 // V_BITS if V_BITS < 8 else 1
    token_head = (begin + row).to(tl.int64) * q_row + (head * GROUP + m % GROUP) * q_head
    channel, real = loads.channels(K_DIM, K_PLANES, K_LANES)
    if WRITES:
        query = rotated_tile(q + token_head, cos, sin, channel, live, real, ROTARY).to(DTYPE)
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
        key = block * BN + tl.arange(0, BN)
        # What lies beyond is read from page 0, which is there for that, and masked.
        page = tl.load(table + key // PAGE, mask=key < high, other=0).to(tl.int64)
        slot = page * PAGE + key % PAGE
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
        known = (key >= low) & (key < high)
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
    place = (begin + row).to(tl.int64) * (heads * GROUP) + head * GROUP + m % GROUP
    stored = live
    if PARTS:
        place += tl.program_id(2).to(tl.int64) * tokens * (heads * GROUP)
        stored = live & some
    channel, real = loads.channels(V_DIM, V_PLANES, V_LANES)
    at = out + place[:, None] * V_DIM
    tl.store(at + channel[None, :], (acc / share).to(out.dtype.element_ty), mask=stored[:, None] & real[None, :])
    if V_REST > 0:
        rest = V_LANES + tl.arange(0, V_REST)
        tl.store(at + rest[None, :], (acc_rest / share).to(out.dtype.element_ty),
                 mask=stored[:, None] & (rest < V_DIM)[None, :])  # fmt: skip
    if LSE:
        lse = tl.where(some, (most + tl.log2(share.reshape(BM))) * LN2, float("-inf"))
        tl.store(lse_out + place, lse, mask=live)
    if MERGED > 0:
        tl.static_assert(PARTS & (V_REST == 0) & (not SEARCH))
        tl.debug_barrier()  # all threads' parts are written before one of them says so
        count = arrived + tl.program_id(0) * heads + head
        if tl.atomic_add(count, 1, sem="acq_rel") == tl.num_programs(2) - 1:
            between = tokens.to(tl.int64) * (heads * GROUP)
            each_row = tl.arange(0, MERGED_ROWS)
            own = (begin + each_row // GROUP).to(tl.int64) * (heads * GROUP) + head * GROUP + each_row % GROUP
            merged_parts(out, lse_out, merged, merged_lse, own, each_row < rows * GROUP, channel, real, between,
                         tl.num_programs(2), V_DIM, V_PLANES * V_LANES, MERGED_ROWS, MERGED, MERGED_LSE)  # fmt: skip
            tl.store(count, 0)


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
