"""A kernel for the unpacked weights of all experts: ``weights [E, N, K]`` in x's dtype.

Importing this needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.compute.layers.linear.triton.kernels.sorted_rows import sorted_rows


@triton.jit(do_not_specialize=["outputs"])
def multiply_sorted(x, weights, bias, out, entries, tiles, outputs, inputs,
                    PLANE: tl.constexpr, PADDED: tl.constexpr, BIAS: tl.constexpr, CHOICES: tl.constexpr,
                    MB: tl.constexpr, BN: tl.constexpr, SLICES: tl.constexpr):  # fmt: skip
    """``out [n, N]``: the entries of each tile times its expert's weights, plus bias; sums in float32.

    See sorted_rows.py. As in planes.py, every warp takes a slice of K, PLANE input features at a time.
    """
    expert, place, m, used = sorted_rows(tiles, entries, MB, CHOICES)
    if expert < 0:
        return
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    row = tl.where(n < outputs, n, 0)
    slices = tl.arange(0, SLICES)
    p = tl.arange(0, PLANE)
    first = expert.to(tl.int64) * outputs
    w_at = weights + (first + row)[None, :, None] * inputs
    x_at = x + m.to(tl.int64)[None, None, :] * inputs
    acc = tl.zeros((SLICES, BN, MB), tl.float32)
    for start in range(0, inputs, SLICES * PLANE):
        k = start + slices[:, None] * PLANE + p[None, :]
        live = k < inputs
        if PADDED:
            w = tl.load(w_at + k[:, None, :], mask=live[:, None, :], other=0.0)
            part_of_x = tl.load(x_at + k[:, :, None], mask=live[:, :, None] & used[None, None, :], other=0.0)
        else:
            w = tl.load(w_at + k[:, None, :])
            part_of_x = tl.load(x_at + k[:, :, None], mask=used[None, None, :], other=0.0)
        acc = tl.dot(w, part_of_x, acc, input_precision="ieee")
    result = tl.sum(acc, 0)
    if BIAS:
        result += tl.load(bias + first + row).to(tl.float32)[:, None]
    at = out + place.to(tl.int64)[None, :] * outputs + n[:, None]
    tl.store(at, result.to(out.dtype.element_ty), mask=(n < outputs)[:, None] & used[None, :])
