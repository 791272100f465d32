"""Kernels for 4-bit weights in planes: a product for a few rows, what surrounds one in a layer too, and dequantisation.

``words [N, blocks * PLANE]`` int16: bits 4j to 4j + 3 of halfword p of a block are the code of its input feature
``j * PLANE + p``. A plane j lies within one group, so that it has one scale. All that is held once a group is held as
``[blocks, N, 4]``, a block's four side by side, and read as one or two integers.

``W = scale * (value - zero) + added`` where the value is the code or what it looks up. OFFSET says which of the rest
there is: "none" (only for looked-up values), "eight" (a zero-point of 8), "zeros", "added", or "two_level" (added too).
SCALE is the dtype of the scales, or "exponent", "nested" or "two_level": see :func:`_scale`.

Importing this needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.compute.layers.linear.triton.kernels.sorted_rows import sorted_rows
from engine.compute.layers.triton.fused_kernels import activated, rounded, share_of
from engine.compute.native.early_kernels import SPAN, fetch, fetch_ahead, let_in, wait


@triton.jit
def _bits(words, at, live, j: tl.constexpr, BITS: tl.constexpr, PER: tl.constexpr):
    """Number j of four, in the lowest bits; 0 where not live."""
    word = tl.load(words + at * (4 // PER) + j // PER, mask=live, other=0)
    return word >> (BITS * (j % PER))


@triton.jit
def _half(words, at, live, j: tl.constexpr, DTYPE: tl.constexpr):
    return _bits(words, at, live, j, 16, 4).to(tl.int16).to(DTYPE, bitcast=True).to(tl.float32)


@triton.jit
def _two_level(words, block, outputs, n, live, j: tl.constexpr, WHICH: tl.constexpr):
    """Scale j (WHICH 0) or offset j (1) of a block of two-level scales; 0 where not live.

    ``words [blocks, N]`` int64: four numbers of 6 bits for scales, from bit 24 on four for offsets, and at the top the
    float16 that they count in: that of scales in even blocks, of offsets in odd ones, each for a pair of blocks.
    """
    numbers = tl.load(words + block * outputs + n, mask=live, other=0)
    unit = tl.load(words + (block // 2 * 2 + WHICH) * outputs + n, mask=live, other=0)
    number = (numbers >> (24 * WHICH + 6 * j)).to(tl.int32) & 63
    return number.to(tl.float32) * (unit >> 48).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _scale(scales, outer, codebook, block, live, n, outputs, inputs, shift, j: tl.constexpr, SCALE: tl.constexpr,
           PLANE: tl.constexpr, OUTER: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """float32 scales of plane j; 0 where not live.

    "exponent": bytes e for 2^(e - 128), as MXFP4 has them for its values doubled. "nested": bytes that look up
    ``codebook``, times ``outer`` of the block of BLOCK * OUTER weights of the flattened matrix, plus ``shift``.
    "two_level": see :func:`_two_level`.
    """
    at = block * outputs + n
    if SCALE == "float32":
        scale = _bits(scales, at, live, j, 32, 2).to(tl.int32).to(tl.float32, bitcast=True)
    elif SCALE == "float16":
        scale = _half(scales, at, live, j, tl.float16)
    elif SCALE == "bfloat16":
        scale = _half(scales, at, live, j, tl.bfloat16)
    elif SCALE == "exponent":
        exponent = _bits(scales, at, live, j, 8, 4) & 255
        bits = tl.where(exponent < 2, 0x00200000 << (exponent & 1), (exponent - 1) << 23)
        scale = tl.where(live, bits.to(tl.float32, bitcast=True), 0.0)
    elif SCALE == "nested":
        code = _bits(scales, at, live, j, 8, 4) & 255
        first = (block * 4 + j) * PLANE
        live = live & (first < inputs)
        wide = tl.load(outer + (n.to(tl.int64) * inputs + first) // (BLOCK * OUTER), mask=live, other=0.0)
        scale = tl.where(live, tl.load(codebook + code) * wide + shift, 0.0)
    else:
        tl.static_assert(SCALE == "two_level")
        scale = _two_level(scales, block, outputs, n, live, j, 0)
    return scale


@triton.jit
def _added(scales, offsets, block, live, n, outputs, j: tl.constexpr, OFFSET: tl.constexpr):
    if OFFSET == "added":
        added = _half(offsets, block * outputs + n, live, j, tl.float16)
    else:
        tl.static_assert(OFFSET == "two_level")
        added = -_two_level(scales, block, outputs, n, live, j, 1)
    return added


@triton.jit
def _codes(w, table, like, j: tl.constexpr, LOOKUP: tl.constexpr):
    """Codes j of words, or what they look up, in the element type of ``like``, by Triton's own operations."""
    code = (w.to(tl.int32) >> (4 * j)) & 15
    if LOOKUP:
        value = tl.load(table + code).to(like.dtype.element_ty)
    else:
        value = code.to(like.dtype.element_ty)
    return value


@triton.jit
def _plane_added(acc, part_of_w, part_of_x, scales, offsets, outer, codebook, block, live, row, outputs, inputs, shift,
                j: tl.constexpr, PLANE: tl.constexpr, SCALE: tl.constexpr, OFFSET: tl.constexpr, OUTER: tl.constexpr,
                BLOCK: tl.constexpr, MAGIC: tl.constexpr):  # fmt: skip
    """``acc [S, BN, MB]`` plus the product of a plane's codes ``[S, BN, PLANE]``, each MAGIC too large, with
    ``part_of_x [S, PLANE, MB]``, of the blocks ``[S, 1]`` that are live and the output features ``row [1, BN]``."""
    at = block * outputs + row
    part = tl.dot(part_of_w, part_of_x, input_precision="ieee")
    scale = _scale(scales, outer, codebook, block, live, row, outputs, inputs, shift, j, SCALE, PLANE, OUTER,
                   BLOCK)[:, :, None]  # fmt: skip
    if OFFSET == "none":
        acc += part * scale
    else:
        # The sum of x over the group, by the tensor cores too: every row of this product is that sum.
        ones = tl.full(part_of_w.shape, 1.0, part_of_x.dtype)
        total = tl.dot(ones, part_of_x, input_precision="ieee")
        if OFFSET == "eight":
            acc += (part - (MAGIC + 8.0) * total) * scale
        elif OFFSET == "zeros":
            zero = (_bits(offsets, at, live, j, 8, 4) & 255).to(tl.float32) + MAGIC
            acc += (part - zero[:, :, None] * total) * scale
        else:
            added = _added(scales, offsets, block, live, row, outputs, j, OFFSET)
            acc += part * scale
            acc += (added[:, :, None] - MAGIC * scale) * total
    return acc


@triton.jit
def _product(x, words, scales, offsets, outer, codebook, table, bias, n, m, used, outputs, inputs, blocks, shift,
             PLANE: tl.constexpr, SCALE: tl.constexpr, OFFSET: tl.constexpr, LOOKUP: tl.constexpr,
             OUTER: tl.constexpr, BLOCK: tl.constexpr, PADDED: tl.constexpr, BIAS: tl.constexpr,
             MB: tl.constexpr, BN: tl.constexpr, SLICES: tl.constexpr,
             ASM: tl.constexpr, MAGIC: tl.constexpr, norm, share, NORM: tl.constexpr):  # fmt: skip
    """float32 ``[BN, MB]``: output features ``n [BN]`` of the rows ``m [MB]`` of x, of those that are used.

    Every warp takes one slice of the input features, SLICES of them at a time; the partial sums meet at the end, always
    in the same order. ``ASM``: how four codes become floats that are MAGIC too large; "" for Triton's own operations.
    NORM: of one row, x times ``share`` and the weights ``norm [K]``, rounded, is multiplied.
    """
    slices = tl.arange(0, SLICES)
    p = tl.arange(0, PLANE)
    # Nothing beyond the last row or block is stored or counted, so any address that exists will do.
    row = tl.where(n < outputs, n, 0)
    word_at = words + row.to(tl.int64)[None, :, None] * (blocks * PLANE) + p[None, None, :]
    x_at = x + m.to(tl.int64)[None, None, :] * inputs
    acc = tl.zeros((SLICES, BN, MB), tl.float32)
    for first in range(0, blocks, SLICES):
        live = (first + slices < blocks)[:, None]
        block = tl.minimum(first + slices, blocks - 1)
        w = tl.load(word_at + block[:, None, None] * PLANE)
        if ASM != "":
            value = tl.inline_asm_elementwise(
                ASM, "=r,=r,=r,=r,r", [w], dtype=(x.dtype.element_ty,) * 4, is_pure=True, pack=2
            )
        for j in tl.static_range(4):
            k = ((block * 4 + j) * PLANE)[:, None, None] + p[None, :, None]
            if PADDED:
                k = tl.minimum(k, inputs - 1)
            if NORM:
                # One column, in the place of all: what the others sum up is not stored.
                one = tl.load(x + k).to(tl.float32) * share * tl.load(norm + k).to(tl.float32)
                part_of_x = tl.broadcast_to(one.to(x.dtype.element_ty), (SLICES, PLANE, MB))
            else:
                part_of_x = tl.load(x_at + k, mask=used[None, None, :], other=0.0)
            if ASM != "":
                part_of_w = value[j]
            else:
                part_of_w = _codes(w, table, x, j, LOOKUP)
            acc = _plane_added(acc, part_of_w, part_of_x, scales, offsets, outer, codebook, block[:, None], live,
                              row[None, :], outputs, inputs, shift, j, PLANE, SCALE, OFFSET, OUTER, BLOCK,
                              MAGIC)  # fmt: skip
    result = tl.sum(acc, 0)
    if BIAS:
        result += tl.load(bias + row).to(tl.float32)[:, None]
    return result


@triton.jit
def _fetch_own(words, scales, first, count, outputs, blocks, PLANE: tl.constexpr, SCALE: tl.constexpr,
               SLICES: tl.constexpr):  # fmt: skip
    """Fetch what the first turn reads of output features ``first`` to ``first + count`` into the level-2 cache, and all
    of their scales."""
    count, row = tl.minimum(count, outputs - first), blocks * (2 * PLANE)
    fetch(words.to(tl.int64) + first.to(tl.int64) * row, row, count, tl.minimum(row, SLICES * 2 * PLANE))
    SIZE: tl.constexpr = 16 if SCALE == "float32" else 4 if SCALE == "exponent" or SCALE == "nested" else 8
    pieces = tl.where((outputs * SIZE % SPAN == 0) & (first * SIZE % SPAN == 0), blocks, 0)
    fetch(scales.to(tl.int64) + first.to(tl.int64) * SIZE, outputs * SIZE, pieces, count * SIZE // SPAN * SPAN)


@triton.jit(do_not_specialize=["rows", "outputs", "blocks", "ahead_bytes"])
def multiply(x, words, scales, offsets, outer, codebook, table, bias, out,
             rows, outputs, inputs, blocks, shift, ahead, ahead_bytes,
             PLANE: tl.constexpr, SCALE: tl.constexpr, OFFSET: tl.constexpr, LOOKUP: tl.constexpr,
             OUTER: tl.constexpr, BLOCK: tl.constexpr, PADDED: tl.constexpr, BIAS: tl.constexpr,
             MB: tl.constexpr, BN: tl.constexpr, SLICES: tl.constexpr,
             ASM: tl.constexpr, MAGIC: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """``out [rows, N] = x [rows, K] W^T + bias``, sums in float32."""
    if EARLY:
        let_in()
        _fetch_own(words, scales, tl.program_id(0) * BN, BN, outputs, blocks, PLANE, SCALE, SLICES)
        wait()
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.program_id(1) * MB + tl.arange(0, MB)
    result = _product(x, words, scales, offsets, outer, codebook, table, bias, n, m, m < rows, outputs, inputs, blocks,
                      shift, PLANE, SCALE, OFFSET, LOOKUP, OUTER, BLOCK, PADDED, BIAS, MB, BN, SLICES, ASM,
                      MAGIC, None, None, False)  # fmt: skip
    if EARLY:
        fetch_ahead(ahead, ahead_bytes)
    at = out + m.to(tl.int64)[None, :] * outputs + n[:, None]
    tl.store(at, result.to(out.dtype.element_ty), mask=(n < outputs)[:, None] & (m < rows)[None, :])


@triton.jit(do_not_specialize=["rows", "outputs", "blocks", "ahead_bytes"])
def multiply_fused(x, words, scales, offsets, outer, codebook, table, bias, out,
                   rows, outputs, inputs, blocks, shift, norm, eps, by, ahead, ahead_bytes,
                   PLANE: tl.constexpr, SCALE: tl.constexpr, OFFSET: tl.constexpr, LOOKUP: tl.constexpr,
                   OUTER: tl.constexpr, BLOCK: tl.constexpr, PADDED: tl.constexpr, BIAS: tl.constexpr,
                   MB: tl.constexpr, BN: tl.constexpr, SLICES: tl.constexpr,
                   ASM: tl.constexpr, MAGIC: tl.constexpr,
                   NORM: tl.constexpr, SIZE: tl.constexpr, LANES: tl.constexpr, KIND: tl.constexpr, ADDED: tl.constexpr,
                   SCALED: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """Same as :func:`multiply`, with what lies before and after it in a layer: the norm of x, gating, an addition.

    NORM: x is one row of SIZE channels, LANES the power of two that is not less, and its norm with weights
    ``norm [SIZE]`` is multiplied. KIND: ``out [rows, N / 2] = KIND(gate) * up``, gates the first half of the output
    features; "" for none. ADDED: ``out += by * x W^T``. Roundings and sums are those of fused_kernels.py.
    """
    if EARLY:
        let_in()
        place = tl.program_id(0)
        if KIND == "":
            _fetch_own(words, scales, place * BN, BN, outputs, blocks, PLANE, SCALE, SLICES)
        else:
            first, half = place * (BN // 2), outputs // 2
            _fetch_own(words, scales, first, BN // 2, outputs, blocks, PLANE, SCALE, SLICES)
            _fetch_own(words, scales, half + first, BN // 2, outputs, blocks, PLANE, SCALE, SLICES)
        if NORM:
            fetch(norm, 0, tl.where(place == 0, 1, 0), SIZE * norm.dtype.element_ty.primitive_bitwidth // 8)
        wait()
    share = 0.0
    if NORM:
        channel = tl.arange(0, LANES)
        share = share_of(tl.load(x + channel, mask=channel < SIZE, other=0.0).to(tl.float32), eps, SIZE)
    i = tl.arange(0, BN)
    m = tl.program_id(1) * MB + tl.arange(0, MB)
    n = tl.program_id(0) * BN + i
    if KIND != "":
        # A program has gates, and then the ups of the same channels.
        n = tl.program_id(0) * (BN // 2) + i % (BN // 2) + i // (BN // 2) * (outputs // 2)
    result = _product(x, words, scales, offsets, outer, codebook, table, bias, n, m, m < rows, outputs, inputs, blocks,
                      shift, PLANE, SCALE, OFFSET, LOOKUP, OUTER, BLOCK, PADDED, BIAS, MB, BN, SLICES, ASM,
                      MAGIC, norm, share, NORM)  # fmt: skip
    result = rounded(result, out)
    if KIND != "":
        gate, up = tl.split(tl.permute(tl.reshape(result, (2, BN // 2, MB)), (1, 2, 0)))
        n = tl.program_id(0) * (BN // 2) + tl.arange(0, BN // 2)
        outputs = outputs // 2
        result = rounded(activated(gate, KIND), out) * up
    if EARLY:
        fetch_ahead(ahead, ahead_bytes)
    at = out + m.to(tl.int64)[None, :] * outputs + n[:, None]
    real = (n < outputs)[:, None] & (m < rows)[None, :]
    if ADDED:
        if SCALED:
            result = rounded(result * by, out)
        result += tl.load(at, mask=real, other=0.0).to(tl.float32)
    tl.store(at, result.to(out.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["outputs", "blocks"])
def multiply_sorted(x, words, scales, offsets, outer, codebook, table, bias, out,
                    entries, tiles, outputs, inputs, blocks, shift,
                    PLANE: tl.constexpr, SCALE: tl.constexpr, OFFSET: tl.constexpr, LOOKUP: tl.constexpr,
                    OUTER: tl.constexpr, BLOCK: tl.constexpr, PADDED: tl.constexpr, BIAS: tl.constexpr,
                    CHOICES: tl.constexpr, MB: tl.constexpr, BN: tl.constexpr, SLICES: tl.constexpr,
                    ASM: tl.constexpr, MAGIC: tl.constexpr):  # fmt: skip
    """Same as :func:`multiply`, with the weights of an expert for each tile: see sorted_rows.py."""
    expert, place, m, used = sorted_rows(tiles, entries, MB, CHOICES)
    if expert < 0:
        return
    tl.static_assert(SCALE != "nested")
    first = expert.to(tl.int64) * outputs
    words += first * (blocks * PLANE)
    scales += first * (blocks * (2 if SCALE == "float32" else 1))
    if OFFSET == "zeros" or OFFSET == "added":
        offsets += first * blocks
    if BIAS:
        bias += first
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    result = _product(x, words, scales, offsets, outer, codebook, table, bias, n, m, used, outputs, inputs, blocks,
                      shift, PLANE, SCALE, OFFSET, LOOKUP, OUTER, BLOCK, PADDED, BIAS, MB, BN, SLICES, ASM,
                      MAGIC, None, None, False)  # fmt: skip
    at = out + place.to(tl.int64)[None, :] * outputs + n[:, None]
    tl.store(at, result.to(out.dtype.element_ty), mask=(n < outputs)[:, None] & used[None, :])


@triton.jit(do_not_specialize=["start", "stop", "outputs", "blocks"])
def dequantise(words, scales, offsets, outer, codebook, table, out,
               start, stop, outputs, inputs, blocks, shift,
               PLANE: tl.constexpr, SCALE: tl.constexpr, OFFSET: tl.constexpr, LOOKUP: tl.constexpr,
               OUTER: tl.constexpr, BLOCK: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    """``out [stop - start, K]``: W of some output features by the definition in float32, rounded once."""
    n = start + tl.program_id(0) * BN + tl.arange(0, BN)[:, None]
    block = tl.program_id(1)
    p = tl.arange(0, PLANE)[None, :]
    row = tl.minimum(n, stop - 1)
    live = row >= 0
    w = tl.load(words + row.to(tl.int64) * (blocks * PLANE) + block * PLANE + p)
    at = block * outputs + row
    for j in tl.static_range(4):
        code = (w.to(tl.int32) >> (4 * j)) & 15
        if LOOKUP:
            value = tl.load(table + code)
        else:
            value = code.to(tl.float32)
        scale = _scale(scales, outer, codebook, block, live, row, outputs, inputs, shift, j, SCALE, PLANE, OUTER,
                       BLOCK)  # fmt: skip
        if OFFSET == "eight":
            value = (value - 8.0) * scale
        elif OFFSET == "zeros":
            value = (value - (_bits(offsets, at, live, j, 8, 4) & 255).to(tl.float32)) * scale
        elif OFFSET == "none":
            value = value * scale
        else:
            value = value * scale + _added(scales, offsets, block, live, row, outputs, j, OFFSET)
        k = (block * 4 + j) * PLANE + p
        place = out + (n - start).to(tl.int64) * inputs + k
        tl.store(place, value.to(out.dtype.element_ty), mask=(n < stop) & (k < inputs))
