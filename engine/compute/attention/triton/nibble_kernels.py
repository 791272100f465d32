"""Attention of a few rows over keys and values of 4 bits, unpacked in registers on the way to tensor cores.

As `byte_kernels` for codes of 8 bits. A halfword holds four codes; an AND leaves one of them in each half of a
register, where it is a float16 of 2^-24 of it, or of 16 times that (tensor cores take such numbers in full: Fasi et al.
2021, doi.org/10.7717/peerj-cs.330). What channels share, a scale and a minimum for each token, is not put on codes:
scores are a sum over groups of channels, of products with codes times the scale and the queries' sum times the minimum;
values are added up group by group with weights that have the scale, and the minima by a product of their own.

A strip is 16 halfwords of a head: its lower codes are 32 neighbouring channels and its higher ones 32 others, either of
which share a scale and are a part. 96 channels are one strip and eight halfwords more, whose lower codes share it with
the higher ones of the strip's first half, and whose higher ones with those of its second: these are parts as well.

Queries stay in shared memory, from which they are fetched once in each turn: there is one loop over keys for that. With
one for whole blocks and one for masked ones, Triton 3.7 keeps them in registers for both, and spills the second's.

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
    """int16 of four codes each -> the lower of its first byte and of its second, and the higher ones.

    The higher are 16 times too large, and all of them 2^24 times too small where ASM is given.
    """
    if ASM != "":
        found = tl.inline_asm_elementwise(
            ASM, "=r,=r,=r,=r,r", [words], dtype=(tl.float16, tl.float16, tl.float16, tl.float16), is_pure=True, pack=2
        )
    else:
        odd = words >> 8
        found = (words & 15).to(NUMBER), (odd & 15).to(NUMBER), (words & 240).to(NUMBER), (odd & 240).to(NUMBER)
    return found


@triton.jit
def _mixed_codes(words, rest, half, ASM: tl.constexpr, NUMBER: tl.constexpr):
    """As :func:`four_codes` of the lower codes of ``words``; then of the higher ones of their first half, all of whose
    bits are set in ``half``, with the lower ones of the second half of ``rest``; then of the higher ones of the rest's
    first half with the words' second."""
    words, half = tl.broadcast(words, half)
    if ASM != "":
        found = tl.inline_asm_elementwise(
            ASM, "=r,=r,=r,=r,=r,=r,r,r,r", [words, rest, half],
            dtype=(tl.float16, tl.float16, tl.float16, tl.float16, tl.float16, tl.float16), is_pure=True, pack=2,
        )  # fmt: skip
    else:
        first, second = (words & half) | (rest & ~half), (rest & half) | (words & ~half)
        mask = tl.where(half != 0, 240, 15)
        found = ((words & 15).to(NUMBER), ((words >> 8) & 15).to(NUMBER), (first & mask).to(NUMBER),
                 ((first >> 8) & mask).to(NUMBER), (second & 240).to(NUMBER),
                 ((second >> 8) & 240).to(NUMBER))  # fmt: skip
    return found


@triton.jit
def _first_half(at, rows):
    """[STRIP] int16, all bits of the first half set.

    A load of nothing, as there are ``rows``: Triton gives operands of tensor cores the layout that they need where they
    are loaded, but not where they are a range of numbers.
    """
    lane = tl.arange(0, STRIP)
    return tl.load(at + lane, mask=lane < -rows, other=tl.where(lane < STRIP // 2, -1, 0)).to(tl.int16)


@triton.constexpr_function
def group_of(part, width):
    """The group of a part's channels: parts are the lower and the higher codes of each strip."""
    return part if width == 96 else part % 2 * (width // 64) + part // 2


@triton.jit
def _channels(PART: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr):
    """Every STEP of the channels of a part's halfwords, and what a code of each counts for: higher ones are 16 times
    too large."""
    place = STEP * tl.arange(0, GROUP_OF // STEP)
    if WIDTH == 96 and PART > 0:
        # Halfwords from the 17th on have the channels from 32 and from 80 on.
        channel = tl.where(place < STRIP, 48, 16) + place if PART == 1 else tl.where(place < STRIP, 80, 48) + place
    else:
        channel = PART % 2 * (WIDTH // 2) + PART // 2 * GROUP_OF + place
    return channel, tl.where(channel < WIDTH // 2, 1.0, 1.0 / 16)


@triton.jit
def _query(at, cos, sin, live, PART: tl.constexpr, WIDTH: tl.constexpr, ROTARY: tl.constexpr):
    """[R, STRIP] float32 of a part's even channels and of its odd ones."""
    channel, _ = _channels(PART, 2, WIDTH)
    even = rotated(at[:, None], cos, sin, channel[None, :], live[:, None], ROTARY)
    return even, rotated(at[:, None], cos, sin, channel[None, :] + 1, live[:, None], ROTARY)


@triton.jit
def queries_of(at, cos, sin, live, WIDTH: tl.constexpr, WARPS: tl.constexpr, LIFTED: tl.constexpr, ROTARY: tl.constexpr,
               NUMBER: tl.constexpr):  # fmt: skip
    """What each row at ``at [R]`` is divided by, to be within float16; of each part the even and the odd channels
    [R, STRIP] of what is left, LIFTED times too large, as they meet its codes, for each of WARPS; and the sum [R] of
    both, which minima meet."""
    factor = tl.zeros((at.shape[0],), tl.float32)
    for part in tl.static_range(WIDTH // GROUP_OF):
        even, odd = _query(at, cos, sin, live, part, WIDTH, ROTARY)
        factor = tl.maximum(factor, tl.maximum(tl.max(tl.abs(even), 1), tl.max(tl.abs(odd), 1)))
    factor = tl.where(factor > 0, factor, 1.0)
    queries, sums = (), ()
    for part in tl.static_range(WIDTH // GROUP_OF):
        even, odd = _query(at, cos, sin, live, part, WIDTH, ROTARY)
        even, odd = (even / factor[:, None]).to(NUMBER), (odd / factor[:, None]).to(NUMBER)
        sums = sums + (tl.sum(even.to(tl.float32), 1) + tl.sum(odd.to(tl.float32), 1),)  # type: ignore[assignment]
        _, unit = _channels(part, 2, WIDTH)
        even, odd = (even * (LIFTED * unit)).to(NUMBER), (odd * (LIFTED * unit)).to(NUMBER)
        queries = queries + (of_warps(even, WARPS), of_warps(odd, WARPS))  # type: ignore[assignment]
    return factor, queries, sums


@triton.jit
def store_part(to, numbers, least, share, stored, PART: tl.constexpr, WIDTH: tl.constexpr, UNIT: tl.constexpr):
    """Store a part's channels ``numbers [R, GROUP_OF]``, of which codes were UNIT times too small, with minima
    ``least [R]``, as means over ``share [R]``, of the rows that are ``stored``, whose results begin at ``to [R]``."""
    channel, unit = _channels(PART, 1, WIDTH)
    numbers = (numbers * (UNIT * unit) + least[:, None]) / share[:, None]
    tl.store(to[:, None] + channel[None, :], numbers.to(to.dtype.element_ty), mask=stored[:, None])


@triton.jit
def _meta(meta, at, known, GROUPS: tl.constexpr, LANES: tl.constexpr):
    """Scales and minima [.., LANES] float16 of keys or values, 0 beyond GROUPS and of keys that are not ``known``."""
    lane = tl.arange(0, LANES)
    real = tl.expand_dims(known, -1)
    if LANES > GROUPS:
        real &= lane < GROUPS
    both = tl.load((meta + lane) + tl.expand_dims(at, -1), mask=real, other=0)
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
def _words(at, places, lane, ACROSS: tl.constexpr):
    """[W, E, STRIP] int16 of the heads that begin at ``places`` from the first; ACROSS: [W, STRIP, E]."""
    words = tl.load((at + lane) + tl.expand_dims(places, -1))
    if ACROSS:
        words = tl.trans(words)
    return words


@triton.jit
def _codes(at, places, half, strip: tl.constexpr, WIDTH: tl.constexpr, ACROSS: tl.constexpr, ASM: tl.constexpr,
           NUMBER: tl.constexpr):  # fmt: skip
    """A strip's codes, like :func:`_words`: of each of its parts the even and the odd ones."""
    lane = tl.arange(0, STRIP)
    words = _words(at, places, strip * STRIP + lane, ACROSS)
    if WIDTH == 96:
        rest = _words(at, places, STRIP + lane % (STRIP // 2), ACROSS)
        found = _mixed_codes(words, rest, half[:, None] if ACROSS else half, ASM, NUMBER)
    else:
        found = four_codes(words, ASM, NUMBER)
    return found


@triton.jit
def _block(block, most, total, added, sums, half, queries, query_sums, factor, limit, length, masked, table,
           k, v, k_meta, v_meta, stride, meta_stride,
           WIDTH: tl.constexpr, LANES: tl.constexpr, WARPS: tl.constexpr, BN: tl.constexpr,
           ASM: tl.constexpr):  # fmt: skip
    """Each warp's running softmax and sums after its keys of a block."""
    NUMBER: tl.constexpr = query_sums.dtype
    EACH: tl.constexpr = BN // WARPS
    GROUPS: tl.constexpr = WIDTH // GROUP_OF
    STRIPS: tl.constexpr = WIDTH // (4 * STRIP)
    PARTS: tl.constexpr = GROUPS // STRIPS
    key, known, slot = warps_slots(table, block, length, WARPS, BN)
    words, at = far(slot, stride, ALIGNED), far(slot, meta_stride, 1)
    scales, minima = _meta(k_meta, at, known, GROUPS, LANES)
    scale = _scales(scales, LANES)
    least = tl.broadcast_to(minima.to(NUMBER)[:, :, :, None], (WARPS, EACH, LANES, SUMS // LANES))
    least = tl.trans(tl.reshape(least, (WARPS, EACH, SUMS)))
    scores = tl.dot(query_sums, least, input_precision="ieee")
    for strip in tl.static_range(STRIPS):
        codes = _codes(k, words, half, strip, WIDTH, True, ASM, NUMBER)
        for part in tl.static_range(strip * PARTS, strip * PARTS + PARTS):
            product = tl.dot(queries[2 * part], codes[2 * (part - strip * PARTS)], input_precision="ieee")
            product = tl.dot(
                queries[2 * part + 1], codes[2 * (part - strip * PARTS) + 1], product, input_precision="ieee"
            )
            scores += product * scale[group_of(part, WIDTH)].to(tl.float32)[:, None, :]
    most, weights, shrink = weights_of(scores, most, factor, key, limit, masked, VALUES, NUMBER)
    scales, minima = _meta(v_meta, at, known, GROUPS, LANES)
    scale = _scales(scales, LANES)
    ones = tl.full((WARPS, EACH, MINIMA), 1.0, NUMBER)
    total = tl.dot(weights, ones, total * shrink, input_precision="ieee")
    least = tl.broadcast_to(minima.to(NUMBER)[:, :, :, None], (WARPS, EACH, LANES, MINIMA // LANES))
    added = tl.dot(weights, tl.reshape(least, (WARPS, EACH, MINIMA)), added * shrink, input_precision="ieee")
    result = ()
    for strip in tl.static_range(STRIPS):
        codes = _codes(v, words, half, strip, WIDTH, False, ASM, NUMBER)
        for part in tl.static_range(strip * PARTS, strip * PARTS + PARTS):
            own = scaled(weights, scale[group_of(part, WIDTH)].to(NUMBER)[:, None, :], ASM)
            result = result + (  # type: ignore[assignment]
                tl.dot(own, codes[2 * (part - strip * PARTS)], sums[2 * part] * shrink, input_precision="ieee"),
                tl.dot(own, codes[2 * (part - strip * PARTS) + 1], sums[2 * part + 1] * shrink, input_precision="ieee"),
            )
    return most, total, added, result


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
    GROUPS: tl.constexpr = WIDTH // GROUP_OF
    LANES: tl.constexpr = 2 if GROUPS == 2 else 4
    SPAN: tl.constexpr = SUMS // LANES
    LIFTED: tl.constexpr = 1.0 if UNIT == 1.0 else LIFT
    head, heads = tl.program_id(1), tl.num_programs(1)
    live, row, member = tile_rows(0, rows, GROUP, BM)
    limit, start, end, whole = keys_of_text(row, rows, length, BN)
    if WRITES:
        codes: tl.constexpr = tl.pointer_type(tl.uint8)
        cos, sin = write_new(new_k, new_v, cos, sin, turns, slots, k.to(codes, bitcast=True), v.to(codes, bitcast=True),
                             k_meta, v_meta, begin, (length - 1) // BN, start, end, new_k_row, new_k_head, new_v_row,
                             new_v_head, turn_row, "int4", WIDTH, WIDTH, ROTARY, LOOKED_UP, GROUP_OF, GROUP_OF,
                             LANES * GROUP_OF // 2, LANES * GROUP_OF // 2)  # fmt: skip

    NUMBER: tl.constexpr = tl.float32 if q.dtype.element_ty == tl.float32 else tl.float16
    at = q + (begin + row).to(tl.int64) * q_row + (head * GROUP + member) * q_head
    factor, queries, found = queries_of(at, cos, sin, live, WIDTH, WARPS, LIFTED, ROTARY, NUMBER)
    span = tl.arange(0, SUMS)[None, :]
    totals = tl.zeros((BM, SUMS), tl.float32)
    for part in tl.static_range(GROUPS):
        totals += tl.where(span // SPAN == group_of(part, WIDTH), found[part][:, None] * (LIFTED / UNIT), 0.0)
    # A sum is a float16 and what that leaves.
    rounded = totals.to(NUMBER)
    rest = (totals - rounded.to(tl.float32)).to(NUMBER)
    query_sums = of_warps(tl.where(span % SPAN == 0, rounded, tl.where(span % SPAN == 1, rest, 0.0)), WARPS)
    factor *= scale * LOG2E * (UNIT / LIFTED)
    table += tl.program_id(0) * table_row
    k += tl.multiple_of(head * head_stride, ALIGNED)
    v += tl.multiple_of(head * head_stride, ALIGNED)
    k_meta += head * GROUPS
    v_meta += head * GROUPS
    half = _first_half(row_start, rows)
    most = tl.full((WARPS, BM), LOWEST, tl.float32)
    total = tl.zeros((WARPS, BM, MINIMA), tl.float32)
    added = tl.zeros((WARPS, BM, MINIMA), tl.float32)
    sums = ()
    for _ in tl.static_range(2 * GROUPS):
        sums = sums + (tl.zeros((WARPS, BM, STRIP), tl.float32),)  # type: ignore[assignment]
    for block in range(start, end):
        most, total, added, sums = _block(
            block, most, total, added, sums, half, queries, query_sums, factor, limit, length, block >= whole, table,
            k, v, k_meta, v_meta, stride, heads * GROUPS, WIDTH, LANES, WARPS, BN, ASM,
        )  # fmt: skip

    most, share = shares_of_warps(most)
    share = share[:, :, None]
    added = tl.sum(added * share, 0)
    # Every column of the product with ones is the same.
    total = tl.max(tl.sum(total * share, 0), 1)
    some = total > 0
    place, stored = result_places(begin + row, member, live, some, tokens, GROUP, PARTS)
    for part in tl.static_range(GROUPS):
        numbers = tl.sum(neighbours(sums[2 * part], sums[2 * part + 1]) * share, 0)
        least = column_of(added, group_of(part, WIDTH) * (MINIMA // LANES))
        store_part(out + place * WIDTH, numbers, least, tl.where(some, total, 1.0), stored, part, WIDTH, UNIT)
    if LSE:
        store_lse(lse_out, place, most, total, live)
    if MERGED > 0:
        merge_if_last(out, lse_out, merged, merged_lse, arrived, begin, rows, tokens, GROUP, WIDTH, MERGED_ROWS,
                      MERGED_COLUMNS, MERGED, MERGED_LSE)  # fmt: skip
