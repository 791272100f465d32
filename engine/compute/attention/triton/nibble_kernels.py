"""Attention of a few rows over keys and values of 4 bits, unpacked in registers on the way to tensor cores.

As `byte_kernels` for codes of 8 bits. A halfword holds four codes; an AND leaves one of them in each half of a
register, where it is a float16 of 2^-24 of it, or of 16 times that (tensor cores take such numbers in full: Fasi et al.
2021, doi.org/10.7717/peerj-cs.330). What channels share, a scale and a minimum for each token, is not put on codes:
scores are a sum over groups of channels, of products with codes times the scale and the queries' sum times the minimum;
values are added up group by group with weights that have the scale, and the minima by a product of their own.

A strip is 16 halfwords of a head: its lower codes are 32 neighbouring channels and its higher ones 32 others. Either
are a part, whose channels share a scale; only of 96 channels the higher ones of the first strip are of two groups,
which are two parts.

Importing this needs Triton.
"""

# ruff: noqa: RUF005 - Triton has no starred tuples

from __future__ import annotations

import triton
import triton.language as tl

from engine.compute.attention.triton.pack_kernels import rotated
from engine.compute.attention.triton.tile_kernels import (
    ALIGNED,
    LOG2E,
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
    write_new,
)

GROUP_OF = tl.constexpr(32)
"""Channels that share a scale and a minimum."""
STRIP = tl.constexpr(16)
"""Halfwords of a strip, as many as one instruction of tensor cores adds up."""
SUMS, MINIMA = tl.constexpr(16), tl.constexpr(8)
"""Columns of the products of queries' sums with minima, and of weights with minima: as few as tensor cores have. Each
group has as many neighbouring ones."""
VALUES = tl.constexpr(4.0)
"""Weights are 2^4 times too large, so that few of their products with scales are smaller than float16 holds in full."""
LIFT = tl.constexpr(32768.0)
"""Factor of queries where codes are small, so that their sums, which are as much smaller, are in float16."""


@triton.jit
def four_codes(words, ASM: tl.constexpr, NUMBER: tl.constexpr):
    """int16 of four codes each -> the lower and the higher of its first byte, and of its second.

    The higher are 16 times too large, and all of them 2^24 times too small where ASM is given.
    """
    if ASM != "":
        low, high, odd_low, odd_high = tl.inline_asm_elementwise(
            ASM, "=r,=r,=r,=r,r", [words], dtype=(tl.float16, tl.float16, tl.float16, tl.float16), is_pure=True, pack=2
        )
    else:
        low, high = (words & 15).to(NUMBER), (words & 240).to(NUMBER)
        odd_low, odd_high = ((words >> 8) & 15).to(NUMBER), ((words >> 8) & 240).to(NUMBER)
    return low, high, odd_low, odd_high


@triton.constexpr_function
def _parts(width):
    """How many parts a head has."""
    return 2 * ((width + 63) // 64) + (1 if width % 64 else 0)


@triton.constexpr_function
def _higher(part, strips):
    """Whether a part are higher codes."""
    return part % 2 == 1 or part == 2 * strips


@triton.constexpr_function
def _place(part, strips):
    """Where a part's strip begins among the results of :func:`four_codes` for all strips, and which it is of them."""
    return 1 if part == 2 * strips else part // 2 * 4 + part % 2


@triton.constexpr_function
def _group(part, width):
    """The group of a part's channels."""
    strips = (width + 63) // 64
    if part == 2 * strips:
        return width // 64 + 1
    return (part % 2 * (width // 2) + part // 2 * 32) // 32


@triton.jit
def _channels(PART: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr, STRIPS: tl.constexpr):
    """Every STEP of the channels of a part's halfwords, and whether they are the part's.

    Parts are the lower and the higher codes of each strip, and then what is of the next group.
    """
    PLACE: tl.constexpr = _place(PART, STRIPS)
    FIRST: tl.constexpr = PLACE % 2 * (WIDTH // 2) + PLACE // 4 * GROUP_OF
    END: tl.constexpr = WIDTH if PLACE % 2 else WIDTH // 2
    GROUP: tl.constexpr = _group(PART, WIDTH)
    channel = FIRST + STEP * tl.arange(0, GROUP_OF // STEP)
    return channel, (channel >= GROUP * GROUP_OF) & (channel < (GROUP + 1) * GROUP_OF) & (channel < END)


@triton.jit
def _query(at, cos, sin, live, PART: tl.constexpr, WIDTH: tl.constexpr, STRIPS: tl.constexpr, ROTARY: tl.constexpr):
    """[R, STRIP] float32 of a part's even channels and of its odd ones."""
    channel, real = _channels(PART, 2, WIDTH, STRIPS)
    real = live[:, None] & real[None, :]
    even = rotated(at[:, None], cos, sin, channel[None, :], real, ROTARY)
    return even, rotated(at[:, None], cos, sin, channel[None, :] + 1, real, ROTARY)


@triton.jit
def _meta(meta, at, known, GROUPS: tl.constexpr, LANES: tl.constexpr, MASKED: tl.constexpr):
    """Scales and minima [.., LANES] float16 of keys or values, 0 beyond GROUPS and of keys that are not ``known``."""
    lane = tl.arange(0, LANES)
    place = (meta + lane) + tl.expand_dims(at, -1)
    if MASKED or LANES > GROUPS:
        real = lane < GROUPS
        if MASKED:
            real = tl.expand_dims(known, -1) & real
        both = tl.load(place, mask=real, other=0)
    else:
        both = tl.load(place)
    return both.to(tl.int16).to(tl.float16, bitcast=True), (both >> 16).to(tl.int16).to(tl.float16, bitcast=True)


@triton.jit
def _scales(scales, LANES: tl.constexpr):
    """[W, E, LANES] -> a tuple of LANES of [W, E]."""
    if LANES == 2:
        first, second = tl.split(scales)
        found = (first, second)
    else:
        tl.static_assert(LANES == 4)
        both = tl.reshape(scales, (scales.shape[0], scales.shape[1], 2, 2))
        low, high = tl.split(both)  # of the even groups and of the odd ones
        first, third = tl.split(low)
        second, fourth = tl.split(high)
        found = (first, second, third, fourth)  # type: ignore[assignment]
    return found


@triton.jit
def _words(at, places, strip: tl.constexpr, WIDTH: tl.constexpr):
    """[W, E, STRIP] int16 of a strip, 0 beyond the head."""
    lane = strip * STRIP + tl.arange(0, STRIP)
    place = (at + lane) + tl.expand_dims(places, -1)
    if (strip + 1) * STRIP > WIDTH // 4:
        words = tl.load(place, mask=lane < WIDTH // 4, other=0)
    else:
        words = tl.load(place)
    return words


@triton.jit
def _block(block, most, total, added, sums, queries, query_sums, factor, limit, length, live, table,
           k, v, k_meta, v_meta, stride, meta_stride,
           WIDTH: tl.constexpr, STRIPS: tl.constexpr, PARTS: tl.constexpr, LANES: tl.constexpr, WARPS: tl.constexpr,
           BN: tl.constexpr, MASKED: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """Each warp's running softmax and sums after its keys of a block. Not MASKED: every row sees all of it."""
    NUMBER: tl.constexpr = query_sums.dtype
    GROUPS: tl.constexpr = WIDTH // GROUP_OF
    key, known, slot = warps_slots(table, block, length, WARPS, BN, MASKED)
    words, at = far(slot, stride, ALIGNED), far(slot, meta_stride, 1)
    scales, minima = _meta(k_meta, at, known, GROUPS, LANES, MASKED)
    scale = _scales(scales, LANES)
    # As they lie in memory: sums that meet a scale are 0.
    both = tl.join(scales.to(NUMBER), minima.to(NUMBER))[:, :, :, None, :]
    both = tl.broadcast_to(both, (WARPS, BN // WARPS, LANES, SUMS // LANES // 2, 2))
    both = tl.permute(tl.reshape(both, (WARPS, BN // WARPS, SUMS)), (0, 2, 1))
    scores = tl.dot(query_sums, both, input_precision="ieee")
    for strip in tl.static_range(STRIPS):
        codes = four_codes(tl.permute(_words(k, words, strip, WIDTH), (0, 2, 1)), ASM, NUMBER)
        for part in tl.static_range(PARTS):
            if _place(part, STRIPS) // 4 == strip:
                low, odd = codes[_place(part, STRIPS) % 4], codes[_place(part, STRIPS) % 4 + 2]
                product = tl.dot(queries[2 * part], low, input_precision="ieee")
                product = tl.dot(queries[2 * part + 1], odd, product, input_precision="ieee")
                scores += product * scale[_group(part, WIDTH)].to(tl.float32)[:, None, :]
    if MASKED:
        scores = tl.where((key[:, None, :] < limit[None, :, None]) & live[None, :, None], scores, float("-inf"))
    more = tl.maximum(most, tl.max(scores, 2) * factor[None, :] - VALUES)
    base = more
    if MASKED:
        base = tl.where(more == float("-inf"), 0.0, more)
    weights = tl.exp2(scores * factor[None, :, None] - base[:, :, None]).to(NUMBER)
    shrink = tl.exp2(most - base)[:, :, None]
    scales, minima = _meta(v_meta, at, known, GROUPS, LANES, MASKED)
    scale = _scales(scales, LANES)
    ones = tl.full((WARPS, BN // WARPS, MINIMA), 1.0, NUMBER)
    total = tl.dot(weights, ones, total * shrink, input_precision="ieee")
    least = tl.broadcast_to(minima.to(NUMBER)[:, :, :, None], (WARPS, BN // WARPS, LANES, MINIMA // LANES))
    least = tl.reshape(least, (WARPS, BN // WARPS, MINIMA))
    added = tl.dot(weights, least, added * shrink, input_precision="ieee")
    codes = ()
    for strip in tl.static_range(STRIPS):
        codes = codes + four_codes(_words(v, words, strip, WIDTH), ASM, NUMBER)
    result = ()
    for part in tl.static_range(PARTS):
        own = scaled(weights, scale[_group(part, WIDTH)].to(NUMBER)[:, None, :], ASM)
        result = result + (  # type: ignore[assignment]
            tl.dot(own, codes[_place(part, STRIPS)], sums[2 * part] * shrink, input_precision="ieee"),
            tl.dot(own, codes[_place(part, STRIPS) + 2], sums[2 * part + 1] * shrink, input_precision="ieee"),
        )
    return more, total, added, result


@triton.jit
def column_of(columns, which: tl.constexpr):
    """Column ``which`` of [R, COLUMNS]."""
    place = tl.arange(0, columns.shape[1]) == which
    return tl.sum(tl.where(place[None, :], columns, 0.0), 1)


@triton.jit(do_not_specialize=["tokens", "table_row", "ahead_bytes"], do_not_specialize_on_alignment=TABLES)
def attend_nibbles(q, k, v, k_meta, v_meta, table, row_start, kv_len, out, lse_out, merged, merged_lse, arrived,
                   new_k, new_v, cos, sin, turns, slots, scale, tokens,
                   q_row, q_head, stride, head_stride, table_row,
                   new_k_row, new_k_head, new_v_row, new_v_head, turn_row, ahead, ahead_bytes,
                   GROUP: tl.constexpr, WIDTH: tl.constexpr, WARPS: tl.constexpr, ASM: tl.constexpr, UNIT: tl.constexpr,
                   LSE: tl.constexpr, PARTS: tl.constexpr, MERGED: tl.constexpr, MERGED_ROWS: tl.constexpr,
                   MERGED_COLUMNS: tl.constexpr, MERGED_LSE: tl.constexpr, WRITES: tl.constexpr, ROTARY: tl.constexpr,
                   LOOKED_UP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """Grid (S, H_kv, splits); at most BM rows times heads a sequence. Keys and values int16 ``[slots, H_kv, WIDTH /
    4]``, WIDTH 64, 96 or 128; strides of them in int16. Each of WARPS has its part of a block's keys and a softmax of
    its own. The rest as in `kernels.attend`."""
    begin, rows, length = enter_text(row_start, kv_len, ahead, ahead_bytes, EARLY)
    if rows == 0:
        return
    STRIPS: tl.constexpr = (WIDTH + 4 * STRIP - 1) // (4 * STRIP)
    GROUPS: tl.constexpr = WIDTH // GROUP_OF
    COUNT: tl.constexpr = _parts(WIDTH)
    LANES: tl.constexpr = 2 if GROUPS == 2 else 4
    SPAN: tl.constexpr = SUMS // LANES
    LIFTED: tl.constexpr = 1.0 if UNIT == 1.0 else LIFT
    head, heads = tl.program_id(1), tl.num_programs(1)
    live, row, member = tile_rows(0, rows, GROUP, BM)
    limit, start, middle, end = keys_of_text(row, rows, length, BN)
    if WRITES:
        codes: tl.constexpr = tl.pointer_type(tl.uint8)
        cos, sin = write_new(new_k, new_v, cos, sin, turns, slots, k.to(codes, bitcast=True), v.to(codes, bitcast=True),
                             k_meta, v_meta, begin, (length - 1) // BN, start, end, new_k_row, new_k_head, new_v_row,
                             new_v_head, turn_row, "int4", WIDTH, WIDTH, ROTARY, LOOKED_UP, GROUP_OF, GROUP_OF,
                             LANES * GROUP_OF // 2, LANES * GROUP_OF // 2)  # fmt: skip

    NUMBER: tl.constexpr = tl.float32 if q.dtype.element_ty == tl.float32 else tl.float16
    at = q + (begin + row).to(tl.int64) * q_row + (head * GROUP + member) * q_head
    factor = tl.zeros((BM,), tl.float32)
    for part in tl.static_range(COUNT):
        even, odd = _query(at, cos, sin, live, part, WIDTH, STRIPS, ROTARY)
        factor = tl.maximum(factor, tl.maximum(tl.max(tl.abs(even), 1), tl.max(tl.abs(odd), 1)))
    factor = tl.where(factor > 0, factor, 1.0)
    queries = ()
    span = tl.arange(0, SUMS)[None, :]
    totals = tl.zeros((BM, SUMS), tl.float32)
    for part in tl.static_range(COUNT):
        even, odd = _query(at, cos, sin, live, part, WIDTH, STRIPS, ROTARY)
        even, odd = (even / factor[:, None]).to(NUMBER), (odd / factor[:, None]).to(NUMBER)
        both = tl.sum(even.to(tl.float32), 1) + tl.sum(odd.to(tl.float32), 1)
        totals += tl.where(span // SPAN == _group(part, WIDTH), both[:, None] * (LIFTED / UNIT), 0.0)
        size = LIFTED / 16 if _higher(part, STRIPS) else LIFTED
        even, odd = (even * size).to(NUMBER), (odd * size).to(NUMBER)
        queries = queries + (of_warps(even, WARPS), of_warps(odd, WARPS))  # type: ignore[assignment]
    # A sum is a float16 and what that leaves.
    rounded = totals.to(NUMBER)
    rest = (totals - rounded.to(tl.float32)).to(NUMBER)
    query_sums = of_warps(tl.where(span % SPAN == 1, rounded, tl.where(span % SPAN == 3, rest, 0.0)), WARPS)
    factor *= scale * LOG2E * (UNIT / LIFTED)
    table += tl.program_id(0) * table_row
    k += tl.multiple_of(head * head_stride, ALIGNED)
    v += tl.multiple_of(head * head_stride, ALIGNED)
    k_meta += head * GROUPS
    v_meta += head * GROUPS
    most = tl.full((WARPS, BM), float("-inf"), tl.float32)
    total = tl.zeros((WARPS, BM, MINIMA), tl.float32)
    added = tl.zeros((WARPS, BM, MINIMA), tl.float32)
    sums = ()
    for _ in tl.static_range(2 * COUNT):
        sums = sums + (tl.zeros((WARPS, BM, STRIP), tl.float32),)  # type: ignore[assignment]
    for block in range(start, middle):
        most, total, added, sums = _block(
            block, most, total, added, sums, queries, query_sums, factor, limit, length, live, table,
            k, v, k_meta, v_meta, stride, heads * GROUPS, WIDTH, STRIPS, COUNT, LANES, WARPS, BN, False, ASM,
        )  # fmt: skip
    for block in range(middle, end):
        most, total, added, sums = _block(
            block, most, total, added, sums, queries, query_sums, factor, limit, length, live, table,
            k, v, k_meta, v_meta, stride, heads * GROUPS, WIDTH, STRIPS, COUNT, LANES, WARPS, BN, True, ASM,
        )  # fmt: skip

    most, share = shares_of_warps(most)
    share = share[:, :, None]
    added = tl.sum(added * share, 0)
    # Every column of the product with ones is the same.
    total = tl.max(tl.sum(total * share, 0), 1)
    some = total > 0
    whole = tl.where(some, total, 1.0)[:, None]
    place, stored = result_places(begin + row, member, live, some, tokens, GROUP, PARTS)
    to = out + place[:, None] * WIDTH
    for part in tl.static_range(COUNT):
        channel, real = _channels(part, 1, WIDTH, STRIPS)
        least = column_of(added, _group(part, WIDTH) * (MINIMA // LANES))[:, None]
        size = UNIT / 16 if _higher(part, STRIPS) else UNIT
        numbers = neighbours(sums[2 * part], sums[2 * part + 1])
        numbers = (tl.sum(numbers * share, 0) * size + least) / whole
        tl.store(to + channel[None, :], numbers.to(out.dtype.element_ty), mask=stored[:, None] & real[None, :])
    if LSE:
        store_lse(lse_out, place, most, total, live)
    if MERGED > 0:
        merge_if_last(out, lse_out, merged, merged_lse, arrived, begin, rows, tokens, GROUP, WIDTH, MERGED_ROWS,
                      MERGED_COLUMNS, MERGED, MERGED_LSE)  # fmt: skip
