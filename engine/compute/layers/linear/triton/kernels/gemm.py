"""A product for many rows with 4-bit weights in planes (planes.py), unpacked in registers on the way to tensor cores.

Importing this needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.compute.layers.linear.triton.kernels.planes import _added, _bits, _scale
from engine.compute.layers.linear.triton.kernels.sorted_rows import sorted_rows


@triton.jit
def _each(values, DTYPE: tl.constexpr, TURN: tl.constexpr):
    """``values [N]`` rounded and repeated: ``[N, TURN]``."""
    return tl.broadcast_to(values.to(DTYPE)[:, None], (values.shape[0], TURN))


@triton.jit
def _product(x, words, scales, offsets, outer, codebook, table, bias, m, outputs, inputs, blocks, shift,
             PLANE: tl.constexpr, SCALE: tl.constexpr, OFFSET: tl.constexpr, LOOKUP: tl.constexpr,
             OUTER: tl.constexpr, BLOCK: tl.constexpr, PADDED: tl.constexpr, BIAS: tl.constexpr,
             MB: tl.constexpr, BN: tl.constexpr, TURN: tl.constexpr,
             ASM: tl.constexpr, SCALED: tl.constexpr, MAGIC: tl.constexpr, SPLITS: tl.constexpr):  # fmt: skip
    """float32 ``[BN, MB]``: this program's output features of the rows ``m [MB]`` of x, all of which there are.
    One of SPLITS sums over its part of the input features alone, the first of them with the bias.

    TURN halfwords of a row at a time, so TURN input features of each of four planes. Scales and weights are rounded to
    the dtype of x, as in MARLIN (arXiv 2408.11743). ``SCALED``: how a code's float and the numbers of its group become
    a weight. The weights are on the left: there the tensor cores take registers, and every warp has outputs of its own,
    which asks for BN >= MB and 16 outputs a warp.
    """
    dtype = x.dtype.element_ty
    # Nothing beyond the last output is stored, so any that exists will do.
    n = tl.minimum(tl.program_id(0) * BN + tl.arange(0, BN), outputs - 1)
    p = tl.arange(0, TURN)
    live = n >= 0
    word_at = words + n.to(tl.int64)[:, None] * (blocks * PLANE) + p[None, :]
    x_at = x + m.to(tl.int64)[None, :] * inputs + p[:, None]
    acc = tl.zeros((BN, MB), tl.float32)
    first_turn, turns = 0, blocks * (PLANE // TURN)
    if SPLITS > 1:
        each = tl.cdiv(turns, SPLITS)
        first_turn = tl.program_id(2) * each
        turns = tl.minimum(first_turn + each, turns)
    for turn in range(first_turn, turns):
        block = turn // (PLANE // TURN)
        w = tl.load(word_at + turn * TURN)
        if ASM != "":
            value = tl.inline_asm_elementwise(ASM, "=r,=r,=r,=r,r", [w], dtype=(dtype,) * 4, is_pure=True, pack=2)
        for j in tl.static_range(4):
            first = (block * 4 + j) * PLANE + turn % (PLANE // TURN) * TURN
            if PADDED:
                # Scales (and so weights) beyond the last input feature are 0.
                first = tl.minimum(first, inputs - TURN)
            part_of_x = tl.load(x_at + first)
            scale = _scale(scales, outer, codebook, block, live, n, outputs, inputs, shift, j, SCALE, PLANE, OUTER,
                           BLOCK)  # fmt: skip
            zero = tl.full((BN,), MAGIC, tl.float32)
            added = tl.zeros((BN,), tl.float32)
            if OFFSET == "eight":
                zero += 8.0
            elif OFFSET == "zeros":
                zero += (_bits(offsets, block * outputs + n, live, j, 8, 4) & 255).to(tl.float32)
            elif OFFSET != "none":
                added = _added(scales, offsets, block, live, n, outputs, j, OFFSET)
            if ASM == "":
                code = (w.to(tl.int32) >> (4 * j)) & 15
                if LOOKUP:
                    looked_up = tl.load(table + code)
                else:
                    looked_up = code.to(tl.float32)
                part_of_w = ((looked_up - zero[:, None]) * scale[:, None] + added[:, None]).to(dtype)
            elif OFFSET == "none":
                part_of_w = tl.inline_asm_elementwise(
                    SCALED, "=r,r,r", [value[j], _each(scale, dtype, TURN)], dtype=dtype, is_pure=True, pack=2
                )
            elif (OFFSET == "eight") | (OFFSET == "zeros"):
                part_of_w = tl.inline_asm_elementwise(
                    SCALED, "=r,r,r,r", [value[j], _each(scale, dtype, TURN), _each(-zero, dtype, TURN)],
                    dtype=dtype, is_pure=True, pack=2,
                )  # fmt: skip
            else:
                part_of_w = tl.inline_asm_elementwise(
                    SCALED, "=r,r,r,r,r",
                    [value[j], _each(scale, dtype, TURN), _each(-zero, dtype, TURN), _each(added, dtype, TURN)],
                    dtype=dtype, is_pure=True, pack=2,
                )  # fmt: skip
            acc = tl.dot(part_of_w, part_of_x, acc, input_precision="ieee")
    if BIAS:
        whole = tl.load(bias + n).to(tl.float32)
        if SPLITS > 1:
            whole = tl.where(tl.program_id(2) == 0, whole, 0.0)
        acc += whole[:, None]
    return acc


@triton.jit(do_not_specialize=["rows", "outputs", "blocks"])
def gemm(x, words, scales, offsets, outer, codebook, table, bias, out,
         rows, outputs, inputs, blocks, shift,
         PLANE: tl.constexpr, SCALE: tl.constexpr, OFFSET: tl.constexpr, LOOKUP: tl.constexpr,
         OUTER: tl.constexpr, BLOCK: tl.constexpr, PADDED: tl.constexpr, BIAS: tl.constexpr,
         MB: tl.constexpr, BN: tl.constexpr, TURN: tl.constexpr,
         ASM: tl.constexpr, SCALED: tl.constexpr, MAGIC: tl.constexpr, SPLITS: tl.constexpr):  # fmt: skip
    """``out [rows, N] = x [rows, K] W^T + bias``; parameters are those of planes.py, sums in float32. With SPLITS
    ``out`` is ``[SPLITS, rows, N]``, for :func:`add_parts`."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.program_id(1) * MB + tl.arange(0, MB)
    # Nothing beyond the last row is stored, so any that exists will do.
    acc = _product(x, words, scales, offsets, outer, codebook, table, bias, tl.minimum(m, rows - 1), outputs, inputs,
                   blocks, shift, PLANE, SCALE, OFFSET, LOOKUP, OUTER, BLOCK, PADDED, BIAS, MB, BN, TURN, ASM,
                   SCALED, MAGIC, SPLITS)  # fmt: skip
    if SPLITS > 1:
        out += tl.program_id(2).to(tl.int64) * rows * outputs
    at = out + m.to(tl.int64)[None, :] * outputs + n[:, None]
    tl.store(at, acc.to(out.dtype.element_ty), mask=(n < outputs)[:, None] & (m < rows)[None, :])


@triton.jit(do_not_specialize=["outputs", "blocks"])
def gemm_sorted(x, words, scales, offsets, outer, codebook, table, bias, out,
                entries, tiles, outputs, inputs, blocks, shift,
                PLANE: tl.constexpr, SCALE: tl.constexpr, OFFSET: tl.constexpr, LOOKUP: tl.constexpr,
                OUTER: tl.constexpr, BLOCK: tl.constexpr, PADDED: tl.constexpr, BIAS: tl.constexpr,
                CHOICES: tl.constexpr, MB: tl.constexpr, BN: tl.constexpr, TURN: tl.constexpr,
                ASM: tl.constexpr, SCALED: tl.constexpr, MAGIC: tl.constexpr, SPLITS: tl.constexpr):  # fmt: skip
    """Same as :func:`gemm` without splits, with the weights of an expert for each tile: see sorted_rows.py."""
    expert, place, m, used = sorted_rows(tiles, entries, MB, CHOICES)
    if expert < 0:
        return
    tl.static_assert((SCALE != "nested") & (SPLITS == 1))
    first = expert.to(tl.int64) * outputs
    words += first * (blocks * PLANE)
    scales += first * (blocks * (2 if SCALE == "float32" else 1))
    if OFFSET == "zeros" or OFFSET == "added":
        offsets += first * blocks
    if BIAS:
        bias += first
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = _product(x, words, scales, offsets, outer, codebook, table, bias, m, outputs, inputs, blocks, shift,
                   PLANE, SCALE, OFFSET, LOOKUP, OUTER, BLOCK, PADDED, BIAS, MB, BN, TURN, ASM,
                   SCALED, MAGIC, SPLITS)  # fmt: skip
    at = out + place.to(tl.int64)[None, :] * outputs + n[:, None]
    tl.store(at, acc.to(out.dtype.element_ty), mask=(n < outputs)[:, None] & used[None, :])


@triton.jit(do_not_specialize=["count"])
def add_parts(parts, out, count, SPLITS: tl.constexpr, SIZE: tl.constexpr):
    """``out [count]`` from ``parts [SPLITS, count]``, added in their order."""
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    live = at < count
    total = tl.load(parts + at, live)
    for part in tl.static_range(1, SPLITS):
        total += tl.load(parts + part * count.to(tl.int64) + at, live)
    tl.store(out + at, total.to(out.dtype.element_ty), live)
