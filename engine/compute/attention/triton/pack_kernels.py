"""Writing keys and values: rotated, quantised and stored in one pass; and KIVI's groups, packed from recent tokens.

The roundings are those of engine/compute/layers/rotary.py and of engine/cache/stores/codecs.py, one by one.

Importing this needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.compute.attention.triton.loads import channels

PAGE = tl.constexpr(16)
PACKED_GROUP = tl.constexpr(32)
LARGEST = tl.constexpr(65504.0)
ROUNDING = tl.constexpr(12582912.0)  # 1.5 * 2^23: adding it leaves no bits after the point, rounded half to even


@triton.jit
def rounded(x):
    return (x + ROUNDING) - ROUNDING


@triton.jit
def rotated(at, cos, sin, channel, real, ROTARY: tl.constexpr):
    """Channels of the heads of one row at ``at``, those below ROTARY rotated; float32, each step rounded to the heads'
    dtype, and 0 where they are not ``real``."""
    DTYPE: tl.constexpr = at.dtype.element_ty
    x = tl.load(at + channel, mask=real, other=0.0).to(tl.float32)
    if ROTARY > 0:
        turns = channel < ROTARY
        other = tl.where(channel < ROTARY // 2, channel + ROTARY // 2, channel - ROTARY // 2)
        y = tl.load(at + other, mask=real & turns, other=0.0).to(tl.float32)
        c = tl.load(cos + channel, mask=turns, other=0.0).to(tl.float32)
        s = tl.load(sin + channel, mask=turns, other=0.0).to(tl.float32)
        turned = (x * c).to(DTYPE).to(tl.float32) + (y * s).to(DTYPE).to(tl.float32)
        x = tl.where(turns, turned.to(DTYPE).to(tl.float32), x)
    return x


@triton.jit
def half(x):
    """float16, which ends at 65504, as float32."""
    return tl.minimum(tl.maximum(x, -LARGEST), LARGEST).to(tl.float16)


@triton.jit
def halves_of(pairs):
    """A pointer to float16 numbers, also where pairs of them are read as one int32."""
    return pairs.to(tl.pointer_type(tl.float16), bitcast=True)


@triton.jit
def codes_of(x, scale, least, TOP: tl.constexpr):
    """Codes 0 to TOP; of a group of equal numbers 0."""
    divisor = tl.where(scale == 0, 1.0, scale)
    return tl.minimum(tl.maximum(rounded(tl.div_rn(x - least, divisor)), 0.0), TOP)


@triton.jit
def float8(x):
    """float32 from -448 to 448 -> the bits of float8_e4m3fn, as `to_float8` of codecs.py has them."""
    size = tl.abs(x)
    bits = size.to(tl.int32, bitcast=True)
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)
    small = (size + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    code = tl.where(size < 0.015625, small, normal)
    return tl.where(x < 0, code - 128, code).to(tl.int8)


@triton.jit
def store_bytes(at, cos, sin, codes, meta, KIND: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr,
                ROTARY: tl.constexpr):  # fmt: skip
    """One head as int8 or fp8: a scale for the largest magnitude."""
    TOP: tl.constexpr = 448.0 if KIND == "fp8" else 127.0
    channel, real = channels(WIDTH, 1, LANES)
    x = rotated(at, cos, sin, channel, real, ROTARY)
    scale = half(tl.div_rn(tl.max(tl.abs(x), 0), TOP))
    wide = scale.to(tl.float32)
    divisor = tl.where(wide == 0, 1.0, wide)
    code = tl.div_rn(x, tl.zeros_like(x) + divisor)
    if KIND == "fp8":
        tl.store(codes + channel, float8(tl.minimum(tl.maximum(code, -TOP), TOP)), mask=real)
    else:
        tl.store(codes + channel, tl.minimum(tl.maximum(rounded(code), -TOP), TOP).to(tl.int8), mask=real)
    tl.store(meta, scale)


@triton.jit
def store_groups(at, cos, sin, codes, meta, WIDTH: tl.constexpr, BITS: tl.constexpr, GROUP: tl.constexpr,
                 LANES: tl.constexpr, ROTARY: tl.constexpr):  # fmt: skip
    """One head in codes of BITS, whose GROUP neighbouring channels share a scale and a minimum.

    LANES: a power of two that is not less than the channels of a plane.
    """
    GROUPS: tl.constexpr = 8 // BITS * LANES // GROUP
    group = tl.arange(0, GROUPS)
    real_group = group < WIDTH // GROUP
    channel = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = rotated(at, cos, sin, channel, channel < WIDTH, ROTARY)
    low, high = tl.min(x, 1), tl.max(x, 1)
    TOP: tl.constexpr = (1 << BITS) - 1
    scale, least = half(tl.div_rn(high - low, tl.full((GROUPS,), TOP, tl.float32))), half(low)
    tl.store(meta + group * 2, scale, mask=real_group)
    tl.store(meta + group * 2 + 1, least, mask=real_group)
    # Planes cut groups anywhere: each channel takes its group's scale out of all of them.
    scale, least = scale.to(tl.float32)[:, None], least.to(tl.float32)[:, None]
    lane = tl.arange(0, LANES)
    PLANE: tl.constexpr = WIDTH * BITS // 8
    byte = tl.zeros((LANES,), tl.int32)
    for plane in tl.static_range(8 // BITS):
        channel = plane * PLANE + lane
        real = lane < PLANE
        mine = (channel // GROUP)[None, :] == group[:, None]
        x = rotated(at, cos, sin, channel, real, ROTARY)
        own_scale, own_least = tl.sum(tl.where(mine, scale, 0.0), 0), tl.sum(tl.where(mine, least, 0.0), 0)
        byte |= codes_of(x, own_scale, own_least, TOP).to(tl.int32) << (plane * BITS)
    tl.store(codes + lane, byte.to(tl.uint8), mask=lane < PLANE)


@triton.jit
def write_head(k_at, v_at, cos, sin, place, k_arena, v_arena, k_meta, v_meta,
               KIND: tl.constexpr, K_DIM: tl.constexpr, V_DIM: tl.constexpr, ROTARY: tl.constexpr,
               K_GROUP: tl.constexpr, V_GROUP: tl.constexpr, K_LANES: tl.constexpr,
               V_LANES: tl.constexpr):  # fmt: skip
    """The key, rotated, and the value of a head, at ``place``: the head's number among those of all slots."""
    if KIND == "int8" or KIND == "fp8":
        store_bytes(k_at, cos, sin, k_arena + place * K_DIM, k_meta + place, KIND, K_DIM, K_LANES, ROTARY)
        store_bytes(v_at, cos, sin, v_arena + place * V_DIM, v_meta + place, KIND, V_DIM, V_LANES, 0)
    elif KIND == "int4":
        k_place, v_place = place * (K_DIM // K_GROUP * 2), place * (V_DIM // V_GROUP * 2)
        store_groups(k_at, cos, sin, k_arena + place * (K_DIM // 2), halves_of(k_meta) + k_place, K_DIM, 4, K_GROUP,
                     K_LANES, ROTARY)  # fmt: skip
        store_groups(v_at, cos, sin, v_arena + place * (V_DIM // 2), halves_of(v_meta) + v_place, V_DIM, 4, V_GROUP,
                     V_LANES, 0)  # fmt: skip
    else:
        channel = tl.arange(0, K_LANES)
        x = rotated(k_at, cos, sin, channel, channel < K_DIM, ROTARY)
        tl.store(k_arena + place * K_DIM + channel, x.to(k_arena.dtype.element_ty), mask=channel < K_DIM)
        channel = tl.arange(0, V_LANES)
        x = tl.load(v_at + channel, mask=channel < V_DIM)
        tl.store(v_arena + place * V_DIM + channel, x, mask=channel < V_DIM)


# Slots lie in tables of a step, and the rotation's rows in a table of the model: anywhere.
@triton.jit(do_not_specialize_on_alignment=["cos", "sin", "slots"])
def write(q, k, v, cos, sin, slots, q_out, k_arena, v_arena, k_meta, v_meta,
          q_row, q_head, k_row, k_head, v_row, v_head, table_row,
          HEADS: tl.constexpr, KIND: tl.constexpr, K_DIM: tl.constexpr, V_DIM: tl.constexpr, ROTARY: tl.constexpr,
          K_GROUP: tl.constexpr, V_GROUP: tl.constexpr, K_LANES: tl.constexpr, V_LANES: tl.constexpr):  # fmt: skip
    """Grid (T, HEADS + H_kv): programs of the first HEADS rotate a query head into ``q_out [T, HEADS, K_DIM]``, those
    of the rest write a key and a value to their slot. HEADS is 0 where nothing rotates.

    LANES: powers of two that hold a head, of codes of 4 bits a plane.
    """
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    cos += row * table_row
    sin += row * table_row
    if head < HEADS:
        channel = tl.arange(0, K_LANES * 2 if KIND == "int4" else K_LANES)
        x = rotated(q + row * q_row + head * q_head, cos, sin, channel, channel < K_DIM, ROTARY)
        tl.store(q_out + (row * HEADS + head) * K_DIM + channel, x.to(q.dtype.element_ty), mask=channel < K_DIM)
        return
    head -= HEADS
    place = tl.load(slots + row) * (tl.num_programs(1) - HEADS) + head
    k_at, v_at = k + row * k_row + head * k_head, v + row * v_row + head * v_head
    write_head(k_at, v_at, cos, sin, place, k_arena, v_arena, k_meta, v_meta, KIND, K_DIM, V_DIM, ROTARY, K_GROUP,
               V_GROUP, K_LANES, V_LANES)  # fmt: skip


@triton.jit(do_not_specialize_on_alignment=["slots", "pages"])
def flush_keys(recent, slots, pages, arena, meta, slot_stride, WIDTH: tl.constexpr, BITS: tl.constexpr,
               LANES: tl.constexpr):  # fmt: skip
    """Grid (groups of 32 tokens, H_kv): each channel's scale and minimum over the group, and the codes."""
    group, head, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    token, lane = tl.arange(0, PACKED_GROUP), tl.arange(0, LANES)
    source = tl.load(slots + group * PACKED_GROUP + token)
    even, odd = tl.load(pages + group * 2), tl.load(pages + group * 2 + 1)
    target = tl.where(token < PAGE, even * PAGE + token, odd * PAGE + token - PAGE)
    PLANE: tl.constexpr = WIDTH * BITS // 8
    TOP: tl.constexpr = (1 << BITS) - 1
    real = lane < PLANE
    byte = tl.zeros((PACKED_GROUP, LANES), tl.int32)
    at = recent + source[:, None] * slot_stride + head * WIDTH
    for plane in tl.static_range(8 // BITS):
        channel = plane * PLANE + lane
        x = tl.load(at + channel[None, :], mask=real[None, :], other=0.0).to(tl.float32)
        low, high = tl.min(x, 0), tl.max(x, 0)
        scale, least = half(tl.div_rn(high - low, tl.full((LANES,), TOP, tl.float32))), half(low)
        tl.store(meta + (even * heads + head) * WIDTH + channel, scale, mask=real)
        tl.store(meta + (odd * heads + head) * WIDTH + channel, least, mask=real)
        wide = tl.zeros((PACKED_GROUP, LANES), tl.float32) + scale.to(tl.float32)[None, :]
        code = codes_of(x, wide, least.to(tl.float32)[None, :], TOP)
        byte |= code.to(tl.int32) << (plane * BITS)
    place = arena + (target * heads + head)[:, None] * PLANE + lane[None, :]
    tl.store(place, byte.to(tl.uint8), mask=real[None, :])


@triton.jit(do_not_specialize_on_alignment=["slots", "pages"])
def flush_values(recent, slots, pages, arena, meta, slot_stride, WIDTH: tl.constexpr, BITS: tl.constexpr,
                 GROUP: tl.constexpr, LANES: tl.constexpr):  # fmt: skip
    """Grid (tokens, H_kv): one head of a token, whose neighbouring channels share scales."""
    token, head, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    place = (tl.load(pages + token // PAGE) * PAGE + token % PAGE) * heads + head
    at = recent + tl.load(slots + token) * slot_stride + head * WIDTH
    store_groups(at, at, at, arena + place * (WIDTH * BITS // 8), meta + place * (WIDTH // GROUP * 2), WIDTH, BITS,
                 GROUP, LANES, 0)  # fmt: skip
