"""The merge of attentions over two disjoint sets of keys.

Importing this needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.compute.attention.triton.tile_kernels import LN2, LOG2E


@triton.jit
def merge(o1, lse1, o2, lse2, out, lse_out, WIDTH: tl.constexpr, LANES: tl.constexpr):
    """Grid (T * H): as `engine.compute.attention.interface.merge`, o [T * H, WIDTH] and lse [T * H] float32."""
    place = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, LANES)
    real = channel < WIDTH
    a, b = tl.load(lse1 + place), tl.load(lse2 + place)
    top = tl.maximum(a, b)
    base = tl.where(top == float("-inf"), 0.0, top)
    w1, w2 = tl.exp2((a - base) * LOG2E), tl.exp2((b - base) * LOG2E)
    total = w1 + w2
    share = tl.where(total == 0, 1.0, total)
    x = tl.load(o1 + place * WIDTH + channel, mask=real, other=0.0).to(tl.float32) * (w1 / share)
    y = tl.load(o2 + place * WIDTH + channel, mask=real, other=0.0).to(tl.float32) * (w2 / share)
    tl.store(out + place * WIDTH + channel, (x + y).to(out.dtype.element_ty), mask=real)
    tl.store(lse_out + place, tl.where(total == 0, float("-inf"), base + tl.log2(share) * LN2))
