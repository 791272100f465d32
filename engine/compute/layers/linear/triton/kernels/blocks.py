"""Kernels for ggml's blocks, byte for byte as in a GGUF file: a product for a few rows, and dequantisation.

Each type has one decoder, which both share. What the bytes mean is said in ggml_blocks.py, whose order of roundings
the decoders keep.

Importing this needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.compute.layers.linear.triton.kernels.sorted_rows import sorted_rows

# Decoders: ``at [..., 1]`` points at blocks, ``lane [..., 32]`` counts the input features of part ``sub`` of each.


@triton.jit
def _float16(at):
    return tl.load(at.to(tl.pointer_type(tl.float16))).to(tl.float32)


@triton.jit
def _byte(at):
    return tl.load(at).to(tl.int32)


@triton.jit
def _nibble(at, lane):
    """16 bytes: first all low nibbles, then all high ones."""
    return (_byte(at + lane % 16) >> (4 * (lane // 16))) & 15


@triton.jit
def _fifth(at, lane):
    return ((_byte(at + lane // 8) >> (lane % 8)) & 1) << 4


@triton.jit
def _small(at, sub, lane, table, TYPE: tl.constexpr):
    """The types of 32 weights."""
    if TYPE == "Q4_1":
        value = _nibble(at + 4, lane).to(tl.float32) * _float16(at) + _float16(at + 2)
    elif TYPE == "Q5_0":
        value = ((_nibble(at + 6, lane) | _fifth(at + 2, lane)) - 16).to(tl.float32) * _float16(at)
    elif TYPE == "Q5_1":
        value = (_nibble(at + 8, lane) | _fifth(at + 4, lane)).to(tl.float32) * _float16(at) + _float16(at + 2)
    elif TYPE == "Q8_0":
        value = _byte(at + 2 + lane).to(tl.int8).to(tl.float32) * _float16(at)
    elif TYPE == "IQ4_NL":
        value = tl.load(table + _nibble(at + 2, lane)) * _float16(at)
    else:
        tl.static_assert(TYPE == "MXFP4")
        exponent = _byte(at)
        bits = tl.where(exponent < 2, 0x00200000 << (exponent & 1), (exponent - 1) << 23)
        value = tl.load(table + _nibble(at + 1, lane)) * bits.to(tl.float32, bitcast=True)
    return value


@triton.jit
def _word(at):
    """16 bits, without a sign."""
    return _byte(at) | _byte(at + 1) << 8


@triton.jit
def _even(sevens, lane):
    """Sign ``lane % 8`` (1: negative) of seven, and of the eighth, which makes the number of the negative ones even."""
    half = sevens ^ (sevens >> 4)
    quarter = half ^ (half >> 2)
    return ((sevens | ((quarter ^ (quarter >> 1)) & 1) << 7) >> (lane % 8)) & 1


@triton.jit
def _book(at, sub: tl.constexpr, lane, table, TYPE: tl.constexpr):
    """The types with a codebook, of 256 weights; ``table`` holds its entries, int8."""
    octet = lane // 8
    if TYPE == "IQ2_XXS" or TYPE == "IQ3_XXS":
        packed = at + (2 + 8 * sub + 4 if TYPE == "IQ2_XXS" else 66 + 4 * sub)
        sign = _even(((_word(packed) | _word(packed + 2) << 16) >> (7 * octet)) & 127, lane)
        odd = 2 * (_byte(packed + 3) >> 4) + 1
        if TYPE == "IQ2_XXS":
            entry, width, share = _byte(at + 2 + 8 * sub + octet), 8, 0.125
        else:
            entry, width, share = _byte(at + 2 + 8 * sub + lane // 4), 4, 0.25
    elif TYPE == "IQ2_XS":
        packed = _word(at + 2 + 8 * sub + 2 * octet)
        sign = _even(packed >> 9, lane)
        odd = 2 * ((_byte(at + 66 + sub) >> (4 * (lane // 16))) & 15) + 1
        entry, width, share = packed & 511, 8, 0.125
    elif TYPE == "IQ2_S":
        sign = (_byte(at + 34 + 4 * sub + octet) >> (lane % 8)) & 1
        odd = 2 * ((_byte(at + 74 + sub) >> (4 * (lane // 16))) & 15) + 1
        above = (_byte(at + 66 + sub) >> (2 * octet)) & 3
        entry, width, share = _byte(at + 2 + 4 * sub + octet) | above << 8, 8, 0.125
    else:
        tl.static_assert(TYPE == "IQ3_S")
        sign = (_byte(at + 74 + 4 * sub + octet) >> (lane % 8)) & 1
        odd = 2 * ((_byte(at + 106 + sub // 2) >> (4 * (sub % 2))) & 15) + 1
        above = (_byte(at + 66 + sub) >> (lane // 4)) & 1
        entry, width, share = _byte(at + 2 + 8 * sub + lane // 4) | above << 8, 4, 1.0
    code = tl.load(table + entry * width + lane % width).to(tl.int32)
    return (code * (1 - 2 * sign)).to(tl.float32) * (_float16(at) * (odd.to(tl.float32) * share))


@triton.jit
def _book1(at, sub: tl.constexpr, lane, table, TYPE: tl.constexpr):
    """IQ1_S and IQ1_M, whose codes are moved by an eighth."""
    octet = lane // 8
    if TYPE == "IQ1_S":
        packed = _word(at + 34 + 2 * sub)
        above, down, number = (packed >> (3 * octet)) & 7, packed >> 15, (packed >> 12) & 7
        entry, head = _byte(at + 2 + 4 * sub + octet), _float16(at)
    else:
        packed = _byte(at + 32 + 2 * sub + octet // 2) >> (4 * (octet % 2))
        above, down = packed & 7, (packed >> 3) & 1
        number = (_word(at + 48 + sub // 2 * 2) >> (6 * (sub % 2) + 3 * (lane // 16))) & 7
        entry = _byte(at + 4 * sub + octet)
        bits = _byte(at + 49) >> 4 | (_byte(at + 51) & 240) | (_byte(at + 53) & 240) << 4 | (_byte(at + 55) & 240) << 8
        head = bits.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    code = tl.load(table + (entry | above << 8) * 8 + lane % 8).to(tl.int32) + 1 - 2 * down
    return code.to(tl.float32) * (head * ((2 * number + 1).to(tl.float32) * 0.125))


@triton.jit
def _ternary(at, sub: tl.constexpr, lane, TYPE: tl.constexpr):
    if TYPE == "TQ2_0":
        code = (_byte(at + 32 * (sub // 4) + lane) >> (2 * (sub % 4))) & 3
        head = _float16(at + 64)
    else:
        # The digits to the base of 3 of a byte, which is a fraction of them: the whole part of three times it.
        if sub < 5:
            byte, place = _byte(at + lane), sub + 0 * lane
        elif sub < 7:
            byte, place = _byte(at + 32 + lane % 16), 2 * (sub - 5) + lane // 16
        else:
            byte = _byte(at + tl.where(lane < 16, 32 + lane, 48 + lane % 4))
            place = tl.where(lane < 16, 4, (lane - 16) // 4)
        power = tl.where(place == 0, 1, tl.where(place == 1, 3, tl.where(place == 2, 9, tl.where(place == 3, 27, 81))))
        code = ((byte * power & 255) * 3) >> 8
        head = _float16(at + 52)
    return (code - 1).to(tl.float32) * head


@triton.jit
def _six_bits(at, sub: tl.constexpr, OFFSETS: tl.constexpr):
    """Number ``sub`` of the eight scales (or offsets) of Q4_K and Q5_K, of 6 bits."""
    if sub < 4:
        number = _byte(at + 4 * OFFSETS + sub) & 63
    else:
        number = ((_byte(at + 4 + sub) >> (4 * OFFSETS)) & 15) | ((_byte(at + 4 * OFFSETS + sub - 4) >> 2) & 48)
    return number.to(tl.float32)


@triton.jit
def _large(at, sub: tl.constexpr, lane, table, TYPE: tl.constexpr):
    """The types of 256 weights."""
    HALF: tl.constexpr = sub // 4
    PART: tl.constexpr = sub % 4
    if TYPE == "Q2_K":
        code = (_byte(at + 16 + 32 * HALF + lane) >> (2 * PART)) & 3
        both = _byte(at + 2 * sub + lane // 16)
        offset = -(_float16(at + 82) * (both >> 4).to(tl.float32))
        value = code.to(tl.float32) * (_float16(at + 80) * (both & 15).to(tl.float32)) + offset
    elif TYPE == "Q3_K":
        code = (_byte(at + 32 + 32 * HALF + lane) >> (2 * PART)) & 3 | ((_byte(at + lane) >> sub) & 1) << 2
        group = 2 * sub + lane // 16
        low = (_byte(at + 96 + group % 8) >> (4 * (group // 8))) & 15
        scale = (low | ((_byte(at + 104 + group % 4) >> (2 * (group // 4))) & 3) << 4) - 32
        value = (code - 4).to(tl.float32) * (_float16(at + 108) * scale.to(tl.float32))
    elif TYPE == "Q6_K":
        low = (_byte(at + 64 * HALF + 32 * (PART % 2) + lane) >> (4 * (PART // 2))) & 15
        code = (low | ((_byte(at + 128 + 32 * HALF + lane) >> (2 * PART)) & 3) << 4) - 32
        scale = _byte(at + 192 + 2 * sub + lane // 16).to(tl.int8).to(tl.float32)
        value = code.to(tl.float32) * (_float16(at + 208) * scale)
    elif TYPE == "IQ4_XS":
        low = (_byte(at + 4 + sub // 2) >> (4 * (sub % 2))) & 15
        scale = (low | ((_byte(at + 2 + HALF) >> (2 * PART)) & 3) << 4) - 32
        value = tl.load(table + _nibble(at + 8 + 16 * sub, lane)) * (_float16(at) * scale.to(tl.float32))
    else:
        scale = _float16(at) * _six_bits(at + 4, sub, False)
        offset = -(_float16(at + 2) * _six_bits(at + 4, sub, True))
        if TYPE == "Q4_K":
            code = (_byte(at + 16 + 32 * (sub // 2) + lane) >> (4 * (sub % 2))) & 15
        else:
            tl.static_assert(TYPE == "Q5_K")
            code = (_byte(at + 48 + 32 * (sub // 2) + lane) >> (4 * (sub % 2))) & 15
            code = code | ((_byte(at + 16 + lane) >> sub) & 1) << 4
        value = code.to(tl.float32) * scale + offset
    return value


@triton.jit
def _part(at, j: tl.constexpr, lane, table, TYPE: tl.constexpr, BYTES: tl.constexpr, WEIGHTS: tl.constexpr):
    """Part j of the TURN parts of 32 input features from the block at ``at`` on."""
    if WEIGHTS == 32:
        value = _small(at + j * BYTES, 0, lane, table, TYPE)
    elif TYPE == "TQ1_0" or TYPE == "TQ2_0":
        value = _ternary(at + j // 8 * BYTES, j % 8, lane, TYPE)
    elif TYPE == "IQ1_S" or TYPE == "IQ1_M":
        value = _book1(at + j // 8 * BYTES, j % 8, lane, table, TYPE)
    elif TYPE == "IQ2_XXS" or TYPE == "IQ2_XS" or TYPE == "IQ2_S" or TYPE == "IQ3_XXS" or TYPE == "IQ3_S":
        value = _book(at + j // 8 * BYTES, j % 8, lane, table, TYPE)
    else:
        value = _large(at + j // 8 * BYTES, j % 8, lane, table, TYPE)
    return value


@triton.jit
def _product(x, data, table, bias, n, m, used, outputs, inputs, row_bytes,
             TYPE: tl.constexpr, BYTES: tl.constexpr, WEIGHTS: tl.constexpr, PLANE: tl.constexpr, TURN: tl.constexpr,
             BIAS: tl.constexpr, MB: tl.constexpr, BN: tl.constexpr, SLICES: tl.constexpr):  # fmt: skip
    """float32 ``[BN, MB]``: output features ``n [BN]`` of the rows ``m [MB]`` of x, of those that are used.

    As in planes.py, every warp takes a slice of K: here TURN parts of PLANE (32) input features.
    """
    slices = tl.arange(0, SLICES)
    lane = tl.arange(0, PLANE)
    row = tl.where(n < outputs, n, 0)
    turns = inputs // (TURN * PLANE)
    row_at = data + row.to(tl.int64)[None, :, None] * row_bytes
    x_at = x + m.to(tl.int64)[None, None, :] * inputs + lane[None, :, None]
    acc = tl.zeros((SLICES, BN, MB), tl.float32)
    for first in range(0, turns, SLICES):
        turn = first + slices
        live = (turn < turns)[:, None, None]
        turn = tl.minimum(turn, turns - 1)[:, None, None]
        at = row_at + turn * (TURN * PLANE // WEIGHTS * BYTES)
        for j in tl.static_range(TURN):
            # What is not live is counted twice, times 0.
            mask = live & used[None, None, :]
            part_of_x = tl.load(x_at + (turn * TURN + j) * PLANE, mask=mask, other=0.0)
            value = _part(at, j, lane[None, None, :], table, TYPE, BYTES, WEIGHTS)
            acc = tl.dot(value.to(x.dtype.element_ty), part_of_x, acc, input_precision="ieee")
    result = tl.sum(acc, 0)
    if BIAS:
        result += tl.load(bias + row).to(tl.float32)[:, None]
    return result


@triton.jit(do_not_specialize=["rows", "outputs"])
def multiply(x, data, table, bias, out, rows, outputs, inputs, row_bytes,
             TYPE: tl.constexpr, BYTES: tl.constexpr, WEIGHTS: tl.constexpr, PLANE: tl.constexpr, TURN: tl.constexpr,
             BIAS: tl.constexpr, MB: tl.constexpr, BN: tl.constexpr, SLICES: tl.constexpr):  # fmt: skip
    """``out [rows, N] = x [rows, K] W^T + bias``: weights rounded once, to x's dtype; sums in float32."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.program_id(1) * MB + tl.arange(0, MB)
    result = _product(x, data, table, bias, n, m, m < rows, outputs, inputs, row_bytes, TYPE, BYTES, WEIGHTS, PLANE,
                      TURN, BIAS, MB, BN, SLICES)  # fmt: skip
    place = out + m.to(tl.int64)[None, :] * outputs + n[:, None]
    tl.store(place, result.to(out.dtype.element_ty), mask=(n < outputs)[:, None] & (m < rows)[None, :])


@triton.jit(do_not_specialize=["outputs"])
def multiply_sorted(x, data, table, bias, out, entries, tiles, outputs, inputs, row_bytes,
                    TYPE: tl.constexpr, BYTES: tl.constexpr, WEIGHTS: tl.constexpr, PLANE: tl.constexpr,
                    TURN: tl.constexpr, BIAS: tl.constexpr, CHOICES: tl.constexpr, MB: tl.constexpr,
                    BN: tl.constexpr, SLICES: tl.constexpr):  # fmt: skip
    """Same as :func:`multiply`, with the weights of an expert for each tile: see sorted_rows.py."""
    expert, place, m, used = sorted_rows(tiles, entries, MB, CHOICES)
    if expert < 0:
        return
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    first = expert.to(tl.int64) * outputs
    data += first * row_bytes
    if BIAS:
        bias += first
    result = _product(x, data, table, bias, n, m, used, outputs, inputs, row_bytes, TYPE, BYTES, WEIGHTS, PLANE,
                      TURN, BIAS, MB, BN, SLICES)  # fmt: skip
    at = out + place.to(tl.int64)[None, :] * outputs + n[:, None]
    tl.store(at, result.to(out.dtype.element_ty), mask=(n < outputs)[:, None] & used[None, :])


@triton.jit(do_not_specialize=["start", "stop", "outputs"])
def dequantise(data, table, out, start, stop, outputs, inputs, row_bytes,
               TYPE: tl.constexpr, BYTES: tl.constexpr, WEIGHTS: tl.constexpr, PLANE: tl.constexpr,
               TURN: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    """``out [stop - start, K]``: W of some output features by the definition in float32, rounded once."""
    n = start + tl.program_id(0) * BN + tl.arange(0, BN)[:, None]
    lane = tl.arange(0, PLANE)[None, :]
    turn = tl.program_id(1)
    row = tl.minimum(n, stop - 1).to(tl.int64)
    at = data + row * row_bytes + turn * (TURN * PLANE // WEIGHTS * BYTES)
    place = out + (n - start).to(tl.int64) * inputs + turn * (TURN * PLANE) + lane
    for j in tl.static_range(TURN):
        value = _part(at, j, lane, table, TYPE, BYTES, WEIGHTS)
        tl.store(place + j * PLANE, value.to(out.dtype.element_ty), mask=n < stop)
