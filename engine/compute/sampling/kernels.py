"""A token for each row of logits, drawn on the device: greedy, by temperature, or after top-k, top-p and min-p.

Scores are compared as 32-bit integers in the order of the floats, so that a threshold is found by halving an interval
of integers, exactly and with ties. All three truncations keep the scores from a threshold on: the k-th largest score;
the smallest one above which less than the share ``top_p`` lies; the largest one plus ``log(min_p)``. So no row is
sorted. (Qrita, arXiv 2602.01518, searches pivots likewise.) Each block lists its largest scores, and the thresholds
are searched among these. Where one may lie below what is listed, or a sum is too near to ``top_p`` for its rounding
not to matter, the row is left to the caller.

Noise is that of noise.py to the bit. Importing this needs Triton. ``ROWS`` rows share a program: one on a GPU, many in
the interpreter, whose programs run one after the other.
"""

from __future__ import annotations

import triton
import triton.language as tl

WORDS = tl.constexpr(6)
"""Words of 64 bits in a row's parameters: key, kind, top_k, then as float64: temperature, top_p, log(min_p)."""
GREEDY = tl.constexpr(0)
WHOLE = tl.constexpr(1)
TRUNCATED = tl.constexpr(2)
OTHER = tl.constexpr(3)
"""Kinds of rows; of the last one no token is drawn here."""
RUN = tl.constexpr(32)
"""Neighbouring tokens that one block handles together. Runs go round the blocks, since common tokens have low ids."""
NO_SCORE = tl.constexpr(-2139095041)
"""-inf in the integer order; what lies below is no score."""
NOTHING = tl.constexpr(-(1 << 63))
"""An empty place in a list."""
LAST = tl.constexpr(0x7FFFFFFF)
UNIT = tl.constexpr(float(1 << 48))
"""Fixed point of shares of the largest one: sums of up to 2^13 of them do not depend on their order."""
DOUBT = tl.constexpr(1e-9)
"""A share this near to ``top_p``, relative to the whole, may fall on either side by rounding."""
LARGEST = tl.constexpr(float(1 << 30))
"""Largest score: beyond it float64 loses the noise of equal ones, and which of them is taken is not defined."""


@triton.jit
def flipped(bits):
    """Its own inverse: the bits of floats as integers that are ordered as they are."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def order_of(score):
    score = tl.where(score == 0.0, 0.0, score)  # -0 ties with 0
    return flipped(score.to(tl.int32, bitcast=True))


@triton.jit
def score_of(order):
    return flipped(order).to(tl.float32, bitcast=True)


@triton.jit
def middle(low, high):
    """``low`` where there is nothing between; the sum of both may not fit."""
    return (low >> 1) + (high >> 1) + (low & high & 1)


@triton.jit
def mixed(h):
    """murmur3's finaliser."""
    h ^= (h >> 16) & 0xFFFF
    h *= -2048144789
    h ^= (h >> 13) & 0x7FFFF
    h *= -1028477387
    return h ^ ((h >> 16) & 0xFFFF)


@triton.jit
def gumbel(key, token):
    """Float64 noise [ROWS, C] of keys [ROWS] int64 (two halves) and tokens [ROWS or 1, C] int32."""
    h = mixed(token) ^ key.to(tl.int32)[:, None]
    h = mixed(h * -1640531535 + (key >> 32).to(tl.int32)[:, None])
    uniform = (h.to(tl.float64) + 2147483648.0 + 0.5) * 2.0**-32
    return -tl.log(-tl.log(uniform))


@triton.jit
def number(words, row, word, inside):
    """A float64 parameter of rows."""
    return tl.load(words + row * WORDS + word, mask=inside, other=0).to(tl.float64, bitcast=True)


@triton.jit
def count_from(order, least):
    """Number of entries [ROWS, C] in each row that are at least ``least`` [ROWS]."""
    return tl.sum((order >= least[:, None]).to(tl.int32), 1)


@triton.jit
def share_from(order, share, least):
    """Sum of the shares [ROWS, C] in each row whose order is at least ``least`` [ROWS], float64."""
    return tl.sum(tl.where(order >= least[:, None], share, 0), 1).to(tl.float64)


@triton.jit(do_not_specialize=["count", "vocabulary", "logits_row"])
def scan(logits, words, best, mark, total, listed, mass, count, vocabulary, logits_row,
         BLOCK: tl.constexpr, KEEP: tl.constexpr, ROWS: tl.constexpr, TRUNCATES: tl.constexpr):  # fmt: skip
    """Grid (rows, blocks). Of rows that are drawn whole: the block's ``best`` value, and its token as ``mark``.

    Of truncated ones ``best`` is the largest score; ``total`` the sum of exp(score - best); from the order ``mark`` on
    all are ``listed``, at most KEEP of them, as order and token, with their exp(score - best) as ``mass``.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    block, blocks = tl.program_id(1), tl.num_programs(1)
    inside = row < count
    kind = tl.load(words + row * WORDS + 1, mask=inside, other=OTHER).to(tl.int32)
    if tl.min(kind) == OTHER:
        return
    lane = tl.arange(0, BLOCK)
    token = (lane // RUN * blocks + block) * RUN + lane % RUN
    live = (kind < OTHER)[:, None] & (token < vocabulary)[None, :]
    score_at = logits + row.to(tl.int64)[:, None] * logits_row + token[None, :]
    score = tl.load(score_at, mask=live, other=float("-inf")).to(tl.float32)
    heat = number(words, row, 3, inside).to(tl.float32)
    score = tl.div_rn(score, tl.broadcast_to(heat[:, None], (ROWS, BLOCK)))
    score = tl.where(score != score, float("inf"), score)  # no number: like inf left to the caller
    at = row.to(tl.int64) * blocks + block
    whole = kind < TRUNCATED
    if tl.max(whole.to(tl.int32)) > 0:
        value = score.to(tl.float64)
        noisy = kind == WHOLE
        if tl.max(noisy.to(tl.int32)) > 0:
            key = tl.load(words + row * WORDS, mask=inside, other=0)
            value = tl.where(noisy[:, None], value + gumbel(key, token[None, :]), value)
        most = tl.max(value, 1)
        tl.store(best + at, most, mask=whole)
        tl.store(mark + at, tl.min(tl.where(value == most[:, None], token[None, :], LAST), 1), mask=whole)
    if TRUNCATES:
        truncated = kind == TRUNCATED
        if tl.max(truncated.to(tl.int32)) > 0:
            peak = tl.max(score, 1)
            order = order_of(score)
            # From `high` on there are at most KEEP; nearly as many will do.
            low, high = tl.full((ROWS,), NO_SCORE, tl.int32), order_of(peak) + 1
            between = middle(low, high)
            while tl.max((between != low).to(tl.int32)) > 0:
                many = count_from(order, between)
                high = tl.where(many <= KEEP, between, high)
                low = tl.where(many <= KEEP, tl.where(many >= KEEP * 3 // 4, between, low), between)
                between = middle(low, high)
            keep = (order >= high[:, None]) & truncated[:, None]
            place = at[:, None] * KEEP + tl.cumsum(keep.to(tl.int32), 1) - 1
            tl.store(listed + place, (order.to(tl.int64) << 32) | token[None, :], mask=keep)
            slot = tl.arange(0, KEEP)[None, :]
            empty = (slot >= count_from(order, high)[:, None]) & truncated[:, None]
            tl.store(listed + at[:, None] * KEEP + slot, tl.full((ROWS, KEEP), NOTHING, tl.int64), mask=empty)
            tl.store(best + at, peak.to(tl.float64), mask=truncated)
            tl.store(mark + at, high, mask=truncated)
            if tl.min(tl.where(truncated, number(words, row, 4, inside), 1.0)) < 1.0:
                level = tl.where(peak == float("-inf"), 0.0, peak).to(tl.float64)
                share = tl.exp(score.to(tl.float64) - level[:, None])
                tl.store(total + at, tl.sum(share, 1), mask=truncated)
                tl.store(mass + place, share, mask=keep)
                tl.store(mass + at[:, None] * KEEP + slot, tl.zeros((ROWS, KEEP), tl.float64), mask=empty)


@triton.jit(do_not_specialize=["count", "vocabulary", "blocks"])
def truncate(words, best, mark, total, listed, mass, chosen, left, count, vocabulary, blocks,
             PARTS: tl.constexpr, KEEP: tl.constexpr, ROWS: tl.constexpr):  # fmt: skip
    """Grid (rows): the survivors of truncated rows, as listed, are ``chosen``; so many are ``left``.

    That is 0 where the row is left to the caller: it has a score that is no number or none that is finite, or a token
    that is not listed may survive, or the edge of the nucleus is in doubt.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < count
    truncated = tl.load(words + row * WORDS + 1, mask=inside, other=OTHER) == TRUNCATED
    if tl.max(truncated.to(tl.int32)) == 0:
        return
    base = row.to(tl.int64) * blocks
    part = tl.arange(0, PARTS)
    real = truncated[:, None] & (part < blocks)[None, :]
    peaks = tl.load(best + base[:, None] + part[None, :], mask=real, other=float("-inf"))
    peak = tl.max(peaks, 1)
    top = order_of(peak.to(tl.float32))
    # From `sure` on every token is listed.
    sure = tl.max(tl.load(mark + base[:, None] + part[None, :], mask=real, other=NO_SCORE + 1), 1)
    gaps = sure > NO_SCORE + 1
    slot = tl.arange(0, PARTS * KEEP)
    held = truncated[:, None] & (slot < blocks * KEEP)[None, :]
    tokens = tl.load(listed + base[:, None] * KEEP + slot[None, :], mask=held, other=NOTHING)
    order = (tokens >> 32).to(tl.int32)

    # The k-th largest is the largest order from which on there are k.
    top_k = tl.load(words + row * WORDS + 2, mask=inside, other=0).to(tl.int32)
    counts = (top_k > 0) & (top_k < vocabulary)
    enough = counts & (count_from(order, sure) >= top_k)
    low, high = tl.where(enough, sure, top), top + 1
    between = middle(low, high)
    while tl.max((between != low).to(tl.int32)) > 0:
        reached = count_from(order, between) >= top_k
        low, high = tl.where(reached, between, low), tl.where(reached, high, between)
        between = middle(low, high)
    least = tl.where(enough, low, NO_SCORE + 1)
    unlisted = counts & (enough == 0) & gaps

    # The last of the nucleus is the smallest order above which there is less than top_p of what top-k left.
    top_p = number(words, row, 4, inside)
    nucleus = truncated & (top_p < 1.0)
    doubt = tl.zeros((ROWS,), tl.int32) > 0
    if tl.max(nucleus.to(tl.int32)) > 0:
        scale = tl.where(real, tl.exp(peaks - peak[:, None]), 0.0)
        column = tl.arange(0, KEEP)[None, None, :]
        mass_at = mass + (base[:, None] + part[None, :])[:, :, None] * KEEP + column
        exact = tl.load(mass_at, mask=(real & nucleus[:, None])[:, :, None], other=0.0)
        share = tl.reshape((exact * scale[:, :, None] * UNIT).to(tl.int64), (ROWS, PARTS * KEEP))
        totals = tl.load(total + base[:, None] + part[None, :], mask=real & nucleus[:, None], other=0.0)
        whole = tl.where(counts, share_from(order, share, least), tl.sum(totals * scale, 1) * UNIT)
        wanted = top_p * whole
        low = tl.where(nucleus, tl.maximum(least, sure) - 1, top)
        high = tl.where(share_from(order, share, low + 1) < wanted, low, top)
        between = middle(low, high)
        while tl.max((between != low).to(tl.int32)) > 0:
            less = share_from(order, share, between + 1) < wanted
            low, high = tl.where(less, low, between), tl.where(less, between, high)
            between = middle(low, high)
        # The largest score always stays.
        above = (high < top) & (tl.abs(share_from(order, share, high + 1) - wanted) < DOUBT * whole)
        doubt = nucleus & (unlisted | above | (tl.abs(share_from(order, share, high) - wanted) < DOUBT * whole))
        least = tl.where(nucleus, tl.maximum(least, high), least)

    lowest = peak + number(words, row, 5, inside)
    missed = gaps & (least < sure) & (score_of(sure - 1).to(tl.float64) >= lowest)
    known = truncated & (tl.abs(peak) < LARGEST) & (missed == 0) & (doubt == 0)
    alive = (order >= least[:, None]) & (score_of(order).to(tl.float64) >= lowest[:, None])
    alive = alive & known[:, None] & (order > NO_SCORE)
    place = tl.cumsum(alive.to(tl.int32), 1)
    # In the place of `mass`, which was read: a place here follows from the thresholds, and these from all of that.
    tl.store(chosen + base[:, None] * KEEP + place - 1, tokens, mask=alive)
    tl.store(left + row, tl.max(place, 1), mask=truncated)


@triton.jit(do_not_specialize=["count", "blocks", "capacity"])
def pick(words, best, mark, chosen, left, out, count, blocks, capacity,
         PARTS: tl.constexpr, KEEP: tl.constexpr, ROWS: tl.constexpr, TRUNCATES: tl.constexpr,
         CHUNK: tl.constexpr):  # fmt: skip
    """Grid (rows): the token of each row to ``out [2, capacity]`` int64, and 1 under it where it is not known."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < count
    kind = tl.load(words + row * WORDS + 1, mask=inside, other=OTHER).to(tl.int32)
    base = row.to(tl.int64) * blocks
    part = tl.arange(0, PARTS)
    real = (kind < TRUNCATED)[:, None] & (part < blocks)[None, :]
    value = tl.load(best + base[:, None] + part[None, :], mask=real, other=float("-inf"))
    found = tl.load(mark + base[:, None] + part[None, :], mask=real, other=LAST)
    most = tl.max(value, 1)
    token = tl.min(tl.where(value == most[:, None], found, LAST), 1)
    known = tl.abs(most) < float("inf")
    if TRUNCATES:
        truncated = kind == TRUNCATED
        many = tl.load(left + row, mask=truncated, other=0)
        key = tl.load(words + row * WORDS, mask=inside, other=0)
        start, stop = 0, tl.max(many)
        while start < stop:
            slot = start + tl.arange(0, CHUNK)[None, :]
            packed = tl.load(chosen + base[:, None] * KEEP + slot, mask=slot < many[:, None], other=NOTHING)
            # Names of their own: what a loop changes keeps its shape.
            listed = (packed & LAST).to(tl.int32)
            score = score_of((packed >> 32).to(tl.int32)).to(tl.float64) + gumbel(key, listed)
            score = tl.where(slot < many[:, None], score, float("-inf"))
            here = tl.max(score, 1)
            first = tl.min(tl.where(score == here[:, None], listed, LAST), 1)
            better = truncated & ((here > most) | ((here == most) & (first < token)))
            most, token = tl.where(better, here, most), tl.where(better, first, token)
            start += CHUNK
        known = tl.where(truncated, many > 0, known)
    tl.store(out + row, tl.where(known, token, 0).to(tl.int64), mask=inside)
    tl.store(out + capacity + row, tl.where(known, 0, 1).to(tl.int64), mask=inside)
