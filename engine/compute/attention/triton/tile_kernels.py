"""What kernels of attention begin and end with: a tile's rows, its keys, the new row that it writes, and its results.

Importing this needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.compute.attention.triton.pack_kernels import write_head
from engine.compute.native.early_kernels import fetch_ahead, let_in, wait

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
PAGE = tl.constexpr(16)

ALIGNED = tl.constexpr(8)
"""Halfwords of 16 bytes: what strides of packed keys and values are multiples of where a few rows have their kernel."""

LOWEST = tl.constexpr(-3e38)
"""The largest score of a row that has seen none: the exponents of what it has yet to see are finite with it."""

TABLES = ["table", "row_start", "kv_len", "first", "stop", "ancestors", "positions", "cos", "sin", "turns", "slots"]
"""Tensors read number by number: their alignment is no reason to compile another kernel."""


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
def tile_rows(tile, rows, GROUP: tl.constexpr, BM: tl.constexpr):
    """Of each of a tile's BM rows: whether there is one, its new row, and its query head among those of the KV head."""
    m = tile * BM + tl.arange(0, BM)
    live = m < rows * GROUP
    return live, tl.where(live, m // GROUP, 0), m % GROUP


@triton.jit
def split_of(first, blocks):
    """The blocks of keys that this program's split has, of those from ``first`` to below ``blocks``."""
    each = tl.cdiv(blocks - first, tl.num_programs(2))
    start = first + tl.program_id(2) * each
    return start, tl.minimum(start + each, blocks)


@triton.jit
def slots_of(table, block, length, BN: tl.constexpr):
    """Keys of a block, whether they are below ``length``, and their slots: those of page 0, which is there for that,
    where they are not."""
    key = block * BN + tl.arange(0, BN)
    known = key < length
    page = tl.load(table + key // PAGE, mask=known, other=0).to(tl.int64)
    return key, known, page * PAGE + key % PAGE


@triton.jit
def warps_slots(table, block, length, WARPS: tl.constexpr, BN: tl.constexpr):
    """As :func:`slots_of` ``[WARPS, BN / WARPS]``, of which each warp has neighbouring keys; for one warp, or all of
    them, ``[BN]``. Slots are int32, and those of keys that are not below ``length`` may hold anything."""
    EACH: tl.constexpr = BN // WARPS
    place = tl.arange(0, EACH)
    if WARPS > 1:
        place = tl.arange(0, WARPS)[:, None] * EACH + place[None, :]
    page, left = place // PAGE, length - block * BN
    number = tl.load(table + (block * (BN // PAGE) + page), mask=page * PAGE < left, other=0)
    return block * BN + place, place < left, number * PAGE + place % PAGE


@triton.jit
def far(slot, stride, UNIT: tl.constexpr):
    """``slot * stride`` as int64, of a stride that UNIT divides: two instructions, where the offset in units takes 32
    bits."""
    return (slot.to(tl.uint32) * (tl.multiple_of(stride, UNIT) // UNIT).to(tl.uint32)).to(tl.int64) * UNIT


@triton.jit
def scaled(weights, scale, ASM: tl.constexpr):
    """``weights * scale``, float16 of one shape, two neighbours by one instruction where there may be PTX."""
    if ASM != "":
        weights, scale = tl.broadcast(weights, scale)
        weights = tl.inline_asm_elementwise(
            "mul.rn.f16x2 $0, $1, $2;", "=r,r,r", [weights, scale], dtype=tl.float16, is_pure=True, pack=2
        )
    else:
        weights *= scale
    return weights


@triton.jit
def neighbours(even, odd):
    """[.., C] twice -> [.., 2 C]: even channels and odd ones in turn."""
    both = tl.join(even, odd)
    if len(even.shape) == 2:
        both = tl.reshape(both, (even.shape[0], 2 * even.shape[1]))
    else:
        both = tl.reshape(both, (even.shape[0], even.shape[1], 2 * even.shape[2]))
    return both


@triton.jit
def of_warps(x, WARPS: tl.constexpr):
    """``x [R]`` or ``[R, C]`` for each of WARPS; x for one."""
    if WARPS == 1:
        each = x
    elif len(x.shape) == 1:
        each = tl.broadcast_to(x[None, :], (WARPS, x.shape[0]))
    else:
        each = tl.broadcast_to(x[None, :, :], (WARPS, x.shape[0], x.shape[1]))
    return each


@triton.jit
def weights_of(scores, most, factor, key, limit, masked, LARGER: tl.constexpr, NUMBER: tl.constexpr):
    """The next step of each row's softmax: ``most [.., R]``, the largest score up to this step less LARGER; the weights
    of ``scores [.., R, keys]`` with that, so 2^LARGER times too large; and what sums up to the step before count for
    now, ``[.., R, 1]``.

    Scores are exponents of 2 when multiplied with ``factor [R]``. Where they are ``masked``, rows see only those of
    ``key [.., keys]`` below ``limit [R]``.
    """
    if masked:
        scores = tl.where(tl.expand_dims(key, -2) < tl.expand_dims(limit, -1), scores, float("-inf"))
    more = tl.maximum(most, tl.max(scores, -1) * factor - LARGER)
    weights = tl.exp2(scores * tl.expand_dims(factor, -1) - tl.expand_dims(more, -1)).to(NUMBER)
    return more, weights, tl.expand_dims(tl.exp2(most - more), -1)


@triton.jit
def shares_of_warps(most):
    """The largest of each row's ``most [WARPS, R]``, exponents of 2, and what the sums of each warp count for."""
    top = tl.max(most, 0)
    return top, tl.exp2(most - top[None, :])


@triton.jit
def enter_text(row_start, kv_len, ahead, ahead_bytes, EARLY: tl.constexpr):
    """Where the new rows of sequence ``program_id(0)`` begin, how many they are, and its length with them, known before
    a kernel that was launched early waits."""
    if EARLY:
        let_in()
        fetch_ahead(ahead, ahead_bytes)
    sequence = tl.program_id(0)
    begin = tl.load(row_start + sequence)
    rows = tl.load(row_start + sequence + 1) - begin
    length = tl.load(kv_len + sequence)
    if EARLY:
        wait()
    return begin, rows, length


@triton.jit
def keys_of_text(row, rows, length, BN: tl.constexpr):
    """The first key that each row does not see, and blocks of a whole text: the first of this program's split, its end,
    and the first that holds a key which some row does not see."""
    start, end = split_of(0, tl.cdiv(length, BN))
    return length - rows + row + 1, start, end, (length - rows + 1) // BN


@triton.jit
def write_new(new_k, new_v, cos, sin, turns, slots, k, v, k_meta, v_meta, begin, last, start, end,
              new_k_row, new_k_head, new_v_row, new_v_head, turn_row,
              KIND: tl.constexpr, K_DIM: tl.constexpr, V_DIM: tl.constexpr, ROTARY: tl.constexpr,
              LOOKED_UP: tl.constexpr, K_GROUP: tl.constexpr, V_GROUP: tl.constexpr, K_LANES: tl.constexpr,
              V_LANES: tl.constexpr):  # fmt: skip
    """cos and sin of a sequence's one row, number ``begin``, whose key and value are written if its key's block
    ``last`` is one from ``start`` to below ``end``: nobody else reads them."""
    head, heads = tl.program_id(1), tl.num_programs(1)
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
                   K_LANES, V_LANES)  # fmt: skip
    tl.debug_barrier()
    return cos, sin


@triton.jit
def place_of(row, member, GROUP: tl.constexpr):
    """The number of a row's query head ``member`` of this program's KV head among those of all rows."""
    head, heads = tl.program_id(1), tl.num_programs(1)
    return row.to(tl.int64) * (heads * GROUP) + head * GROUP + member


@triton.jit
def result_places(row, member, live, some, tokens, GROUP: tl.constexpr, PARTS: tl.constexpr):
    """Numbers of the results of a tile's rows, and whether they are stored: of parts those that see ``some`` key."""
    place = place_of(row, member, GROUP)
    if PARTS:
        place += tl.program_id(2).to(tl.int64) * tokens * (tl.num_programs(1) * GROUP)
        live = live & some
    return place, live


@triton.jit
def store_lse(lse_out, place, most, total, live):
    """Store the logarithms of ``total * 2^most``, -inf where that is 0, of the rows that are live (None: all)."""
    some = total > 0
    lse = tl.where(some, (most + tl.log2(tl.where(some, total, 1.0))) * LN2, float("-inf"))
    tl.store(lse_out + place, lse, mask=live)


@triton.jit
def merged_parts(parts, lses, out, lse_out, place, live, each, V_DIM: tl.constexpr, ROWS: tl.constexpr,
                 COLUMNS: tl.constexpr, MOST: tl.constexpr, LSE: tl.constexpr):  # fmt: skip
    """Rows ``place [ROWS]`` of out and lse_out as :func:`kernels.combine` merges them, of parts ``each`` rows apart.

    Other programs wrote them in this launch: nothing of them is taken from this multiprocessor's own cache. No load of
    COLUMNS channels waits for another one.
    """
    split, splits = tl.arange(0, MOST), tl.num_programs(2)
    at = split[None, :].to(tl.int64) * each + place[:, None]
    known = live[:, None] & (split < splits)[None, :]
    lse = tl.load(lses + at, mask=known, other=float("-inf"), cache_modifier=".cg")
    most = tl.max(lse, 1)
    base = tl.where(most == float("-inf"), 0.0, most)
    total = tl.sum(tl.exp(lse - base[:, None]), 1)
    share = tl.where(total > 0, total, 1.0)
    for first in range(0, V_DIM, COLUMNS):
        channel = first + tl.arange(0, COLUMNS)
        real = channel < V_DIM
        acc = tl.zeros((ROWS, COLUMNS), tl.float32)
        for one in tl.static_range(MOST):
            own, there = one * each + place, live & (one < splits)
            weight = tl.load(lses + own, mask=there, other=float("-inf"), cache_modifier=".cg")
            part = tl.load(parts + own[:, None] * V_DIM + channel[None, :], mask=there[:, None] & real[None, :],
                           other=0.0, cache_modifier=".cg")  # fmt: skip
            # What nobody wrote may be anything, and 0 * NaN is NaN.
            acc += tl.where((weight > float("-inf"))[:, None], part, 0.0) * tl.exp(weight - base)[:, None]
        o = (acc / share[:, None]).to(out.dtype.element_ty)
        tl.store(out + place[:, None] * V_DIM + channel[None, :], o, mask=live[:, None] & real[None, :])
    if LSE:
        tl.store(lse_out + place, tl.where(total > 0, base + tl.log(share), float("-inf")), mask=live)


@triton.jit
def merge_if_last(parts, lses, out, lse_out, arrived, begin, rows, tokens, GROUP: tl.constexpr, V_DIM: tl.constexpr,
                  ROWS: tl.constexpr, COLUMNS: tl.constexpr, MOST: tl.constexpr, LSE: tl.constexpr):  # fmt: skip
    """Merge the parts of the splits of tile ``program_id(0)``, which has at most ROWS rows, if this one is the last to
    end, which the number of those before it in ``arrived [tiles, H_kv]`` says; then 0 is left there."""
    tl.debug_barrier()  # all threads' parts are written before one of them says so
    heads = tl.num_programs(1)
    count = arrived + tl.program_id(0) * heads + tl.program_id(1)
    if tl.atomic_add(count, 1, sem="acq_rel") == tl.num_programs(2) - 1:
        m = tl.arange(0, ROWS)
        place = place_of(begin + m // GROUP, m % GROUP, GROUP)
        merged_parts(parts, lses, out, lse_out, place, m < rows * GROUP, tokens.to(tl.int64) * (heads * GROUP), V_DIM,
                     ROWS, COLUMNS, MOST, LSE)  # fmt: skip
        tl.store(count, 0)
