"""Everything between the projections of a gated delta net (engine/compute/layers/recurrent/delta_rule.py), row by row.

Importing this needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def seen(mixed, tails, row, first, source, at, real, width, channels, TAPS: tl.constexpr):
    """Channels ``at`` that are ``real`` of a row of a sequence that begins with row ``first``; rows before it are in a
    slot's tail."""
    inside = row >= first
    new = tl.load(mixed + row * width + at, mask=inside & real, other=0.0)
    place = (source * (TAPS - 1) + row - first + TAPS - 1) * channels + at
    old = tl.load(tails + place, mask=(row < first) & real, other=0.0)
    return tl.where(inside, new, old)


@triton.jit
def convolved(mixed, tails, convolution, row, first, source, at, real, width, channels, TAPS: tl.constexpr):
    """SiLU of the convolution; float32."""
    total = tl.zeros(at.shape, dtype=tl.float32)
    for tap in tl.static_range(TAPS):
        x = seen(mixed, tails, row - (TAPS - 1) + tap, first, source, at, real, width, channels, TAPS)
        total += x.to(tl.float32) * tl.load(convolution + tap * channels + at, mask=real, other=0.0)
    return total / (1.0 + tl.exp(-total))


@triton.jit
def leave_tail(mixed, tails, stop, first, source, target, at, real, width, channels, TAPS: tl.constexpr):
    """The last inputs before row ``stop`` into the tail of a slot."""
    for tap in tl.static_range(TAPS - 1):
        x = seen(mixed, tails, stop - (TAPS - 1) + tap, first, source, at, real, width, channels, TAPS)
        tl.store(tails + (target * (TAPS - 1) + tap) * channels + at, x, mask=real)


@triton.jit
def gated(x, z, norm, eps, VALUE: tl.constexpr, SILU: tl.constexpr):
    """The norm of a head's VALUE numbers times the SiLU of its gates z, or their sigmoid; float32."""
    x *= tl.rsqrt(tl.sum(x * x, 0) / VALUE + eps) * norm
    by = 1.0 / (1.0 + tl.exp(-z))
    return x * (z * by if SILU else by)


@triton.jit
def delta_rule(
    mixed,
    gates,
    read,
    convolution,
    decay,
    bias,
    tails,
    matrices,
    runs,
    begins,
    norm,
    out,
    eps,
    key_heads,
    value_heads,
    unit_eps,
    share_scale,
    KEY: tl.constexpr,
    KEY_LANES: tl.constexpr,
    VALUE: tl.constexpr,
    TAPS: tl.constexpr,
    PART: tl.constexpr,
    TILED: tl.constexpr,
    CHANNEL_DECAYS: tl.constexpr,
    NORMED: tl.constexpr,
):
    """Grid (value heads, VALUE / PART, sequences): ``read [T, value_heads * VALUE]`` float32, and the states.

    NORMED: a program has all columns of a head, and writes what :func:`gated_norm` makes of them into ``out`` instead.

    A program has PART columns of a head's matrix, whose KEY rows take KEY_LANES, the next power of two. ``runs [R, 5]``
    and ``begins [sequences + 1]`` int64: see `Delta` of delta.c. The rows of a sequence follow each other, so what its
    convolution sees is in ``mixed`` but for the tail that its first run goes on from: no program reads what another one
    writes.
    """
    head, part, sequence = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    each = value_heads // key_heads
    group = head % key_heads if TILED else head // each
    leads = head < key_heads if TILED else head % each == 0
    channels = 2 * key_heads * KEY + value_heads * VALUE
    width = channels + value_heads * VALUE
    i, j = tl.arange(0, KEY_LANES), part * PART + tl.arange(0, PART)
    real, all_of_them = i < KEY, j < VALUE
    decays = KEY if CHANNEL_DECAYS else 1
    at_q, at_k = group * KEY + i, (key_heads + group) * KEY + i
    at_v = 2 * key_heads * KEY + head * VALUE + j
    at_both, both_real = tl.join(at_q, at_k), tl.join(real, real)
    place, inside = i[:, None] * VALUE + j[None, :], real[:, None]
    begin, end = tl.load(begins + sequence), tl.load(begins + sequence + 1)
    first, before = tl.load(runs + begin * 5), tl.load(runs + begin * 5 + 2)
    own_decay = tl.load(decay + head)
    channel = i if CHANNEL_DECAYS else 0
    own_bias = tl.load(bias + head * decays + channel, mask=channel < decays, other=0.0)
    state = tl.load(matrices + (before * value_heads + head) * KEY * VALUE + place, mask=inside, other=0.0)
    for run in range(begin, end):
        start, stop, target = tl.load(runs + run * 5), tl.load(runs + run * 5 + 1), tl.load(runs + run * 5 + 3)
        for row in range(start, stop):
            # Of both together there are as many as threads: of fewer each thread would load what many others do.
            q, k = tl.split(
                convolved(mixed, tails, convolution, row, first, before, at_both, both_real, width, channels, TAPS)
            )
            v = convolved(mixed, tails, convolution, row, first, before, at_v, all_of_them, width, channels, TAPS)
            q *= tl.rsqrt(tl.sum(q * q, 0) + unit_eps) * (1.0 / tl.sqrt(KEY * 1.0))
            k *= tl.rsqrt(tl.sum(k * k, 0) + unit_eps)
            at = gates + row * value_heads * (1 + decays)
            share = share_scale / (1.0 + tl.exp(-tl.load(at + head).to(tl.float32)))
            x = tl.load(at + value_heads + head * decays + channel, mask=channel < decays, other=0.0)
            x = x.to(tl.float32) + own_bias
            kept = tl.exp(own_decay * tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(tl.minimum(x, 20.0)))))
            state *= kept[:, None] if CHANNEL_DECAYS else kept
            said = tl.sum(state * k[:, None], 0)
            state += k[:, None] * ((v - said) * share)[None, :]
            said = tl.sum(state * q[:, None], 0)
            if NORMED:
                z = tl.load(mixed + row * width + channels + head * VALUE + j).to(tl.float32)
                said = gated(said, z, tl.load(norm + j), eps, VALUE, CHANNEL_DECAYS == 0)
                tl.store(out + (row * value_heads + head) * VALUE + j, said.to(out.dtype.element_ty))
            else:
                tl.store(read + (row * value_heads + head) * VALUE + j, said)
        if target > 0:
            tl.store(matrices + (target * value_heads + head) * KEY * VALUE + place, state, mask=inside)
            leave_tail(mixed, tails, stop, first, before, target, at_v, all_of_them, width, channels, TAPS)
            if leads & (part == 0):
                leave_tail(mixed, tails, stop, first, before, target, at_q, real, width, channels, TAPS)
                leave_tail(mixed, tails, stop, first, before, target, at_k, real, width, channels, TAPS)


@triton.jit
def gated_norm(read, mixed, norm, out, channels, heads, eps, VALUE: tl.constexpr, LANES: tl.constexpr,
               SILU: tl.constexpr):  # fmt: skip
    """Grid (T, heads): ``out [T, heads * VALUE]``, the norm of each head of ``read`` times the SiLU of its gate, or the
    sigmoid."""
    row, head, j = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, LANES)
    place, real = (row * heads + head) * VALUE + j, j < VALUE
    x = tl.load(read + place, mask=real, other=0.0)
    z = tl.load(mixed + row * (channels + heads * VALUE) + channels + head * VALUE + j, mask=real, other=0.0)
    x = gated(x, z.to(tl.float32), tl.load(norm + j, mask=real, other=0.0), eps, VALUE, SILU)
    tl.store(out + place, x.to(out.dtype.element_ty), mask=real)
