"""Operations between the products of a layer: the addition to the residual stream with the norm after it, and gating.

The roundings are those of torch's operators one after the other: a result is rounded to its tensor's dtype wherever one
of them would have stored it.

Importing this needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.compute.native.early_kernels import enter


@triton.jit
def rounded(x, like):
    """x as a tensor of the element type of ``like`` would hold it; float32."""
    return x.to(like.dtype.element_ty).to(tl.float32)


@triton.jit
def share_of(x, eps, SIZE: tl.constexpr):
    """``1 / sqrt(mean(x^2) + eps)`` of the SIZE channels of a row, float32, with zeros after them."""
    return tl.rsqrt(tl.sum(x * x, 0) / SIZE + eps)


@triton.jit(do_not_specialize=["ahead_bytes"])
def add_norm(x, added, weight, out, scale, eps, ahead, ahead_bytes, SIZE: tl.constexpr, LANES: tl.constexpr,
             SCALED: tl.constexpr, EARLY: tl.constexpr):  # fmt: skip
    """Grid (T): ``x += scale * added`` and ``out = x / sqrt(mean(x^2) + eps) * weight``, each ``[T, SIZE]``.

    LANES: the power of two that is not less than SIZE. SCALED: scale is not 1.
    """
    if EARLY:
        enter(ahead, ahead_bytes)
    row = tl.program_id(0).to(tl.int64) * SIZE
    channel = tl.arange(0, LANES)
    real = channel < SIZE
    more = tl.load(added + row + channel, mask=real, other=0.0).to(tl.float32)
    if SCALED:
        more = rounded(more * scale, added)
    total = tl.load(x + row + channel, mask=real, other=0.0).to(tl.float32) + more
    tl.store(x + row + channel, total.to(x.dtype.element_ty), mask=real)
    total = rounded(total, x)
    share = share_of(total, eps, SIZE)
    factor = tl.load(weight + channel, mask=real, other=0.0).to(tl.float32)
    tl.store(out + row + channel, (total * share * factor).to(out.dtype.element_ty), mask=real)


@triton.jit
def activated(x, KIND: tl.constexpr):
    """silu, gelu or gelu_tanh of float32 numbers."""
    if KIND == "silu":
        return x / (1.0 + tl.exp(-x))
    if KIND == "gelu":
        return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (2.0 - 2.0 / (tl.exp(2.0 * inner) + 1.0))  # 1 + tanh(inner)


@triton.jit
def gated(x, up, limit, alpha, like, KIND: tl.constexpr):
    """``KIND(x) * up`` of gates and ups in float32, to be stored in the element type of ``like``.

    KIND "clamped" is gpt-oss': ``(up + 1) * x * sigmoid(alpha * x)``, x at most ``limit`` and up within it.
    """
    if KIND == "clamped":
        x, up = tl.minimum(x, limit), tl.minimum(tl.maximum(up, -limit), limit)
        x, up = rounded(x, like), rounded(up, like)
        share = rounded(1.0 / (1.0 + tl.exp(-rounded(x * alpha, like))), like)
        x, up = rounded(x * share, like), rounded(up + 1.0, like)
    else:
        x = rounded(activated(x, KIND), like)
    return x * up


@triton.jit(do_not_specialize=["ahead_bytes"])
def gate(gate_up, out, size, limit, alpha, ahead, ahead_bytes, KIND: tl.constexpr, LANES: tl.constexpr,
         EARLY: tl.constexpr):  # fmt: skip
    """Grid (T, size / LANES): ``out [T, size]`` from ``gate_up [T, 2 * size]``, whose gates come first: see
    :func:`gated`."""
    if EARLY:
        enter(ahead, ahead_bytes)
    row = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * LANES + tl.arange(0, LANES)
    real = channel < size
    at = gate_up + row * 2 * size + channel
    x = tl.load(at, mask=real, other=0.0).to(tl.float32)
    up = tl.load(at + size, mask=real, other=0.0).to(tl.float32)
    result = gated(x, up, limit, alpha, gate_up, KIND)
    tl.store(out + row * size + channel, result.to(out.dtype.element_ty), mask=real)
