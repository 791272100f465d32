"""Kernels for 8-bit weights: a product for a few rows, and dequantisation.

``codes [N, K]`` int8, ``scales`` floating and ``zeros`` int8 or None ``[groups, N]``:
``W = (code - zero) * scale * factor``. PLANE input features at a time, which all lie in one group of GROUP.

Importing this needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.compute.layers.linear.triton.kernels.sorted_rows import sorted_rows


@triton.jit
def _product(x, codes, scales, zeros, bias, n, m, used, outputs, inputs, factor,
             PLANE: tl.constexpr, TURN: tl.constexpr, GROUP: tl.constexpr, ZEROS: tl.constexpr, BIAS: tl.constexpr,
             MB: tl.constexpr, BN: tl.constexpr, SLICES: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """float32 ``[BN, MB]``: output features ``n [BN]`` of the rows ``m [MB]`` of x, of those that are used.

    As in planes.py, every warp takes a slice of K. ``ASM``: how four int8 become floats; "" for Triton's own.
    """
    slices = tl.arange(0, SLICES)
    p = tl.arange(0, PLANE)
    row = tl.where(n < outputs, n, 0)
    planes = inputs // PLANE
    code_at = codes + row.to(tl.int64)[None, :, None] * inputs + p[None, None, :]
    x_at = x + m.to(tl.int64)[None, None, :] * inputs + p[None, :, None]
    acc = tl.zeros((SLICES, BN, MB), tl.float32)
    for first in range(0, planes, SLICES * TURN):
        for j in tl.static_range(TURN):
            plane = first + slices * TURN + j
            live = (plane < planes)[:, None]
            plane = tl.minimum(plane, planes - 1)
            w = tl.load(code_at + plane[:, None, None] * PLANE)
            part_of_x = tl.load(x_at + plane[:, None, None] * PLANE, mask=used[None, None, :], other=0.0)
            if ASM != "":
                value = tl.inline_asm_elementwise(ASM, "=r,=r,r", [w], dtype=x.dtype.element_ty, is_pure=True, pack=4)
            else:
                value = w.to(x.dtype.element_ty)
            part = tl.dot(value, part_of_x, input_precision="ieee")
            at = (plane * PLANE // GROUP)[:, None] * outputs + row[None, :]
            scale = tl.load(scales + at, mask=live, other=0.0).to(tl.float32)
            if ZEROS:
                ones = tl.full((SLICES, BN, PLANE), 1.0, x.dtype.element_ty)
                total = tl.dot(ones, part_of_x, input_precision="ieee")
                part -= tl.load(zeros + at, mask=live, other=0).to(tl.float32)[:, :, None] * total
            acc += part * scale[:, :, None]
    result = tl.sum(acc, 0) * factor
    if BIAS:
        result += tl.load(bias + row).to(tl.float32)[:, None]
    return result


@triton.jit(do_not_specialize=["rows", "outputs"])
def multiply(x, codes, scales, zeros, bias, out, rows, outputs, inputs, factor,
             PLANE: tl.constexpr, TURN: tl.constexpr, GROUP: tl.constexpr, ZEROS: tl.constexpr, BIAS: tl.constexpr,
             MB: tl.constexpr, BN: tl.constexpr, SLICES: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """``out [rows, N] = x [rows, K] W^T + bias``, sums in float32."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.program_id(1) * MB + tl.arange(0, MB)
    result = _product(x, codes, scales, zeros, bias, n, m, m < rows, outputs, inputs, factor, PLANE, TURN, GROUP, ZEROS,
                      BIAS, MB, BN, SLICES, ASM)  # fmt: skip
    place = out + m.to(tl.int64)[None, :] * outputs + n[:, None]
    tl.store(place, result.to(out.dtype.element_ty), mask=(n < outputs)[:, None] & (m < rows)[None, :])


@triton.jit(do_not_specialize=["outputs"])
def multiply_sorted(x, codes, scales, zeros, bias, out, entries, tiles, outputs, inputs, factor,
                    PLANE: tl.constexpr, TURN: tl.constexpr, GROUP: tl.constexpr, ZEROS: tl.constexpr,
                    BIAS: tl.constexpr, CHOICES: tl.constexpr, MB: tl.constexpr, BN: tl.constexpr,
                    SLICES: tl.constexpr, ASM: tl.constexpr):  # fmt: skip
    """Same as :func:`multiply`, with the weights of an expert for each tile: see sorted_rows.py."""
    expert, place, m, used = sorted_rows(tiles, entries, MB, CHOICES)
    if expert < 0:
        return
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    first = expert.to(tl.int64) * outputs
    codes += first * inputs
    scales += first * (inputs // GROUP)
    if ZEROS:
        zeros += first * (inputs // GROUP)
    if BIAS:
        bias += first
    result = _product(x, codes, scales, zeros, bias, n, m, used, outputs, inputs, factor, PLANE, TURN, GROUP, ZEROS,
                      BIAS, MB, BN, SLICES, ASM)  # fmt: skip
    at = out + place.to(tl.int64)[None, :] * outputs + n[:, None]
    tl.store(at, result.to(out.dtype.element_ty), mask=(n < outputs)[:, None] & used[None, :])


@triton.jit(do_not_specialize=["start", "stop", "outputs"])
def dequantise(codes, scales, zeros, out, start, stop, outputs, inputs, factor,
               PLANE: tl.constexpr, GROUP: tl.constexpr, ZEROS: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    """``out [stop - start, K]``: W of some output features by the definition in float32, rounded once."""
    n = start + tl.program_id(0) * BN + tl.arange(0, BN)[:, None]
    k = tl.program_id(1) * PLANE + tl.arange(0, PLANE)[None, :]
    row = tl.minimum(n, stop - 1)
    value = tl.load(codes + row.to(tl.int64) * inputs + k).to(tl.float32)
    at = (tl.program_id(1) * PLANE // GROUP) * outputs + row
    if ZEROS:
        value -= tl.load(zeros + at).to(tl.float32)
    value = value * tl.load(scales + at).to(tl.float32) * factor
    tl.store(out + (n - start).to(tl.int64) * inputs + k, value.to(out.dtype.element_ty), mask=n < stop)
