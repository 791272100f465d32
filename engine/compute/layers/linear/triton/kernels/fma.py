"""A product for few rows with 4-bit weights in planes (planes.py) without tensor cores: Triton has none on Turing.

Importing this needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.compute.layers.linear.triton.kernels.planes import _added, _bits, _scale


@triton.jit(do_not_specialize=["rows", "outputs", "blocks"])
def fma(x, words, scales, offsets, outer, codebook, table, bias, out,
        rows, outputs, inputs, blocks, shift,
        PLANE: tl.constexpr, SCALE: tl.constexpr, OFFSET: tl.constexpr, LOOKUP: tl.constexpr,
        OUTER: tl.constexpr, BLOCK: tl.constexpr, PADDED: tl.constexpr, BIAS: tl.constexpr,
        MB: tl.constexpr, BN: tl.constexpr, SLICES: tl.constexpr,
        ASM: tl.constexpr, MAGIC: tl.constexpr):  # fmt: skip
    """``out [rows, N] = x [rows, K] W^T + bias``; parameters are those of planes.py, products and sums in float32.

    Every thread has a few halfwords of each of BN rows and a sum for each, and the sums meet at the end. SLICES blocks
    at a time.
    """
    # Nothing beyond the last row or output is stored, so any that exists will do.
    n = tl.minimum(tl.program_id(0) * BN + tl.arange(0, BN), outputs - 1)[None, :, None, None]
    m = tl.minimum(tl.program_id(1) * MB + tl.arange(0, MB), rows - 1)[:, None, None, None]
    slices = tl.arange(0, SLICES)[None, None, :, None]
    p = tl.arange(0, PLANE)[None, None, None, :]
    word_at = words + n.to(tl.int64) * (blocks * PLANE) + p
    x_at = x + m.to(tl.int64) * inputs + p
    acc = tl.zeros((MB, BN, SLICES, PLANE), tl.float32)
    for first in range(0, blocks, SLICES):
        # Of blocks beyond the last the scale is 0.
        live = (first + slices < blocks) & (n >= 0)
        block = tl.minimum(first + slices, blocks - 1)
        w = tl.load(word_at + block * PLANE)
        if ASM != "":
            value = tl.inline_asm_elementwise(
                ASM, "=r,=r,=r,=r,r", [w], dtype=(x.dtype.element_ty,) * 4, is_pure=True, pack=2
            )
        for j in tl.static_range(4):
            k = (block * 4 + j) * PLANE
            if PADDED:
                # What is beyond the last input feature has the scale 0.
                k = tl.minimum(k, inputs - PLANE)
            part_of_x = tl.load(x_at + k).to(tl.float32)
            if ASM != "":
                code = value[j]
                # Exact: integers that float16 has.
                if OFFSET == "eight":
                    code -= MAGIC + 8.0
                elif OFFSET == "zeros":
                    # As the codes are made: where the last bit of a float16 counts 1.
                    tl.static_assert(MAGIC == 1024)
                    zero = (_bits(offsets, block * outputs + n, live, j, 8, 4) & 255) | 0x6400
                    code -= zero.to(tl.int16).to(tl.float16, bitcast=True)
                elif not LOOKUP:
                    code -= MAGIC
                code = code.to(tl.float32)
            else:
                index = (w.to(tl.int32) >> (4 * j)) & 15
                if LOOKUP:
                    code = tl.load(table + index)
                else:
                    code = index.to(tl.float32)
                if OFFSET == "eight":
                    code -= 8.0
                elif OFFSET == "zeros":
                    code -= (_bits(offsets, block * outputs + n, live, j, 8, 4) & 255).to(tl.float32)
            scale = _scale(scales, outer, codebook, block, live, n, outputs, inputs, shift, j, SCALE, PLANE, OUTER,
                           BLOCK)  # fmt: skip
            weight = code * scale
            if (OFFSET == "added") | (OFFSET == "two_level"):
                weight += _added(scales, offsets, block, live, n, outputs, j, OFFSET)
            acc += weight * part_of_x
    result = tl.sum(tl.sum(acc, 3), 2)
    n = tl.program_id(0) * BN + tl.arange(0, BN)[None, :]
    m = tl.program_id(1) * MB + tl.arange(0, MB)[:, None]
    if BIAS:
        result += tl.load(bias + n, mask=n < outputs, other=0.0).to(tl.float32)
    at = out + m.to(tl.int64) * outputs + n
    tl.store(at, result.to(out.dtype.element_ty), mask=(n < outputs) & (m < rows))
