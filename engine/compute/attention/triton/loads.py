"""Loads of keys and values of every kind in kernels: a tile of keys, as numbers, in the columns of its layout.

A tile's columns are planes of LANES columns each: column ``p * LANES + j`` holds channel ``p * (WIDTH // PLANES) + j``
where ``j < WIDTH // PLANES``, and 0 elsewhere. Queries and results have the same columns, so nothing is ever put in
another order. Dense heads are one plane, LANES wide, and the REST of their channels a second tile.

Importing this needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def channels(WIDTH: tl.constexpr, PLANES: tl.constexpr, LANES: tl.constexpr):
    """The channel of every column, and whether there is one."""
    column = tl.arange(0, PLANES * LANES)
    PLANE: tl.constexpr = WIDTH // PLANES
    if PLANES * LANES == WIDTH:
        channel, real = column, column >= 0
    elif PLANES == 1:
        channel, real = column, column < WIDTH
    else:
        channel, real = column // LANES * PLANE + column % LANES, column % LANES < PLANE
    return channel, real


@triton.jit
def numbers(at, slot, stride, WIDTH: tl.constexpr, LANES: tl.constexpr):
    """[BN, LANES] as they are in memory, 0 beyond WIDTH: ``at`` points at the head's first channel in slot 0."""
    lane = tl.arange(0, LANES)[None, :]
    place = at + slot[:, None] * stride + lane
    if LANES > WIDTH:
        values = tl.load(place, mask=lane < WIDTH, other=0)
    else:
        values = tl.load(place)
    return values


@triton.jit
def byte_codes(at, slot, stride, WIDTH: tl.constexpr, LANES: tl.constexpr, KIND: tl.constexpr):
    """[BN, LANES] codes of kind "int8" as they are, of "fp8" as float16: the bits of a float of 8 bits are those of a
    float16 of a 256th of it."""
    codes = numbers(at, slot, stride, WIDTH, LANES)
    if KIND == "fp8":
        codes = ((codes.to(tl.int16) << 7) & -0x4080).to(tl.float16, bitcast=True)
    return codes


@triton.jit
def byte_scales(meta, slot, stride, KIND: tl.constexpr):
    """[BN] float32: what :func:`byte_codes` gives is to be multiplied by."""
    scales = tl.load(meta + slot * stride).to(tl.float32)
    if KIND == "fp8":
        scales *= 256.0
    return scales


@triton.jit
def planes(at, slot, stride, WIDTH: tl.constexpr, BITS: tl.constexpr, LANES: tl.constexpr, BN: tl.constexpr):
    """[BN, PLANES * LANES] float32, ``1 + code / 2^BITS``: codes put where a float's mantissa begins.

    (GPUs convert integers at a fraction of the speed of other instructions; scales undo this for nothing.)
    """
    word = numbers(at, slot, stride, WIDTH * BITS // 8, LANES).to(tl.int32)
    TOP: tl.constexpr = (0x7FFFFF >> BITS) ^ 0x7FFFFF
    if BITS == 4:
        bits = tl.join((word << 19) & TOP, (word << 15) & TOP)  # [BN, LANES, 2]
        bits = tl.reshape(tl.permute(bits, (0, 2, 1)), (BN, 2 * LANES))
    else:
        tl.static_assert(BITS == 2)
        low = tl.join((word << 21) & TOP, (word << 19) & TOP)
        high = tl.join((word << 17) & TOP, (word << 15) & TOP)
        bits = tl.permute(tl.join(low, high), (0, 3, 2, 1))  # plane 2 * h + l is at [.., l, h]
        bits = tl.reshape(bits, (BN, 4 * LANES))
    return (bits | 0x3F800000).to(tl.float32, bitcast=True)


@triton.jit
def of_mantissas(scale, least, BITS: tl.constexpr):
    """Scale and minimum of codes -> those of what :func:`planes` makes of them."""
    scale = scale * (1 << BITS)
    return scale, least - scale


@triton.jit
def halves(word):
    """An int32 of two float16: the one at the lower address, then the other, as float32."""
    low = word.to(tl.int16).to(tl.float16, bitcast=True)
    high = (word >> 16).to(tl.int16).to(tl.float16, bitcast=True)
    return low.to(tl.float32), high.to(tl.float32)


@triton.jit
def token_groups(codes, meta, slot, stride, WIDTH: tl.constexpr, BITS: tl.constexpr, GROUP: tl.constexpr,
                 LANES: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    """Results of :func:`planes` -> numbers where GROUP channels of a token share a scale and a minimum.

    ``meta [slots, .., WIDTH / GROUP]`` int32: both. Without padding columns are channels, and a group loads them once;
    else a block of columns does that lies in one group and is padding or not as a whole.
    """
    if 8 // BITS * LANES == WIDTH:
        GROUPS: tl.constexpr = WIDTH // GROUP
        scale, least = halves(tl.load(meta + slot[:, None] * stride + tl.arange(0, GROUPS)[None, :]))
        scale, least = of_mantissas(scale, least, BITS)
        codes = tl.reshape(codes, (BN, GROUPS, GROUP)) * scale[:, :, None] + least[:, :, None]
        codes = tl.reshape(codes, (BN, WIDTH))
    else:
        PLANE: tl.constexpr = WIDTH * BITS // 8
        BLOCK: tl.constexpr = (PLANE | GROUP) & -(PLANE | GROUP)  # the largest power of two that divides both
        BLOCKS: tl.constexpr = 8 // BITS * LANES // BLOCK
        column = tl.arange(0, BLOCKS) * BLOCK
        channel, real = column // LANES * PLANE + column % LANES, column % LANES < PLANE
        place = meta + slot[:, None] * stride + (channel // GROUP)[None, :]
        scale, least = halves(tl.load(place, mask=real[None, :], other=0))
        scale, least = of_mantissas(scale, least, BITS)
        codes = tl.reshape(codes, (BN, BLOCKS, BLOCK)) * scale[:, :, None] + least[:, :, None]
        codes = tl.reshape(codes, (BN, BLOCKS * BLOCK))
    return codes


@triton.jit
def channel_groups(codes, meta, even, odd, stride, WIDTH: tl.constexpr, BITS: tl.constexpr, LANES: tl.constexpr):
    """Results of :func:`planes` for 32 tokens -> numbers where they share each channel's scale, at page ``even`` of
    ``meta [pages, .., WIDTH]`` float16, and its minimum, at page ``odd``."""
    channel, real = channels(WIDTH, 8 // BITS, LANES)
    scale = tl.load(meta + even * stride + channel, mask=real, other=0.0).to(tl.float32)
    least = tl.load(meta + odd * stride + channel, mask=real, other=0.0).to(tl.float32)
    scale, least = of_mantissas(scale, least, BITS)
    return codes * scale[None, :] + least[None, :]


@triton.jit
def of_head(at, meta, slot, stride, place, places, KIND: tl.constexpr, WIDTH: tl.constexpr, BITS: tl.constexpr,
         GROUP: tl.constexpr, LANES: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    """[BN, columns] of head ``place`` of ``places``, in a kind whose scales are tokens': numbers, or what
    :func:`byte_codes` gives."""
    if KIND == "int4" or KIND == "kivi":
        codes = planes(at, slot, stride, WIDTH, BITS, LANES, BN)
        GROUPS: tl.constexpr = WIDTH // GROUP
        values = token_groups(codes, meta + place * GROUPS, slot, places * GROUPS, WIDTH, BITS, GROUP, LANES, BN)
    elif KIND == "int8" or KIND == "fp8":
        values = byte_codes(at, slot, stride, WIDTH, LANES, KIND)
    else:
        values = numbers(at, slot, stride, WIDTH, LANES)
    return values
