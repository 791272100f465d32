"""Kernels around the products of experts: scores, choice, sorting and the sum.

Importing this needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.compute.layers.triton.fused_kernels import rounded, share_of


@triton.jit
def score(x, weights, bias, scores, experts, inputs, BIAS: tl.constexpr, BK: tl.constexpr):
    """``scores [T, E] = x [T, K] weights[E, K]^T + bias``, all in float32 but x: program (t, e) computes one."""
    row, expert = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lane = tl.arange(0, BK)
    acc = tl.zeros((BK,), tl.float32)
    for start in range(0, inputs, BK):
        k = start + lane
        part = tl.load(x + row * inputs + k, mask=k < inputs, other=0.0).to(tl.float32)
        acc += part * tl.load(weights + expert * inputs + k, mask=k < inputs, other=0.0)
    total = tl.sum(acc, 0)
    if BIAS:
        total += tl.load(bias + expert)
    tl.store(scores + row * experts + expert, total)


@triton.jit
def judge(x, added, norm, weights, bias, gate, stream, normed, scores, opened, by, eps,
          SIZE: tl.constexpr, LANES: tl.constexpr, ADDED: tl.constexpr, SCALED: tl.constexpr, EXPERTS: tl.constexpr,
          BIAS: tl.constexpr, GATE: tl.constexpr):  # fmt: skip
    """Grid (T, EXPERTS): addition to the residual stream, norm, and :func:`score` of its result, of few rows.

    ADDED: ``stream [T, SIZE] = x + by * added``, SCALED: by is not 1; else x is the stream. ``normed [T, SIZE]`` is its
    norm by the weights ``norm [SIZE]``, with the roundings of `fused_kernels.add_norm`. Every program makes its own of
    it. GATE: one more program a row computes ``opened [T] = normed gate[SIZE]``, float32. LANES: the power of two that
    is not less than SIZE.
    """
    row, expert = tl.program_id(0).to(tl.int64), tl.program_id(1)
    channel = tl.arange(0, LANES)
    real = channel < SIZE
    scored = expert < EXPERTS
    weight = tl.load(weights + expert * SIZE + channel, mask=real & scored, other=0.0)
    if GATE:
        of_gate = tl.load(gate + channel, mask=real & (expert == EXPERTS), other=0.0).to(tl.float32)
        weight = tl.where(scored, weight, of_gate)
    total = tl.load(x + row * SIZE + channel, mask=real, other=0.0).to(tl.float32)
    if ADDED:
        more = tl.load(added + row * SIZE + channel, mask=real, other=0.0).to(tl.float32)
        if SCALED:
            more = rounded(more * by, added)
        total = rounded(total + more, x)
        tl.store(stream + row * SIZE + channel, total.to(stream.dtype.element_ty), mask=real & (expert == 0))
    factor = tl.load(norm + channel, mask=real, other=0.0).to(tl.float32)
    total = rounded(total * share_of(total, eps, SIZE) * factor, normed)
    tl.store(normed + row * SIZE + channel, total.to(normed.dtype.element_ty), mask=real & (expert == 0))
    result = tl.sum(total * weight, 0)
    if BIAS:
        result += tl.load(bias + expert, mask=scored, other=0.0)
    tl.store(scores + row * EXPERTS + expert, result, mask=scored)
    if GATE:
        tl.store(opened + row, result, mask=expert == EXPERTS)


@triton.jit
def _largest(values, rank, free):
    """The rank that is lowest among those of the largest free value (NaN is the largest); ``rank`` is below 2^31.

    By two maxima of 32 bits, each one instruction a warp from sm_80 on.
    """
    values = tl.where(values != values, float("inf"), values)
    # Both zeros are equal, as integers too; these are in the order of the floats.
    bits = tl.where(values == 0, 0.0, values).to(tl.int32, bitcast=True)
    order = tl.where(free, bits ^ ((bits >> 31) & 0x7FFFFFFF), -0x7FFFFFFF)
    return tl.min(tl.where(free & (order == tl.max(order, 0)), rank, 0x7FFFFFFF), 0)


@triton.jit
def _best_two(judged, group, exists, GROUPS: tl.constexpr):
    """Sum, for each expert, of the two largest values of its group."""
    total = tl.zeros_like(judged)
    for each in tl.static_range(GROUPS):
        inside = exists & (group == each)
        own = tl.where(inside, judged, float("-inf"))
        largest = tl.max(own, 0)
        first = tl.argmax(own, 0)
        second = tl.max(tl.where(tl.arange(0, judged.shape[0]) == first, float("-inf"), own), 0)
        total = tl.where(inside, largest + second, total)
    return total


@triton.jit
def choice(scores, bias, scale, EXPERTS: tl.constexpr, CHOICES: tl.constexpr, GROUPS: tl.constexpr,
           GROUPS_TAKEN: tl.constexpr, ALL: tl.constexpr, SIGMOID: tl.constexpr, BIAS: tl.constexpr,
           NORMALISED: tl.constexpr, BE: tl.constexpr):  # fmt: skip
    """The experts that a row with ``scores [E]`` asks, a mask of BE lanes, and the share of each.

    See `engine.compute.layers.experts.router.Router.route`, which says the same in torch's operations: ALL is a softmax
    over all experts, SIGMOID of each by itself, neither a softmax over those chosen; ``bias [E]`` takes part in the
    choice alone.
    """
    lane = tl.arange(0, BE)
    exists = lane < EXPERTS
    value = tl.load(scores + lane, mask=exists, other=float("-inf"))
    if ALL:
        value = tl.exp(value - tl.max(value, 0))
        value = value / tl.sum(value, 0)
    if SIGMOID:
        power = tl.exp(-tl.abs(value))
        value = tl.where(value < 0, power, 1.0) / (1.0 + power)
    judged = value
    if BIAS:
        judged += tl.load(bias + lane, mask=exists, other=0.0)
    free = exists
    if GROUPS_TAKEN < GROUPS:
        group = lane // (EXPERTS // GROUPS)
        ranked = _best_two(judged, group, exists, GROUPS) if SIGMOID else judged
        inside = lane < 0
        for _ in tl.static_range(GROUPS_TAKEN):
            inside = inside | (group == _largest(ranked, group, exists & (inside == 0)))
        free = exists & inside
    taken = lane < 0
    for _ in tl.static_range(CHOICES):
        taken = taken | (lane == _largest(judged, lane, free & (taken == 0)))
    if ALL or SIGMOID:
        share = tl.where(taken, value, 0.0)
        if NORMALISED:
            share = share / tl.sum(share, 0)
    else:
        share = tl.exp(value - tl.max(tl.where(taken, value, float("-inf")), 0))
        share = tl.where(taken, share, 0.0)
        share = share / tl.sum(share, 0)
    return taken, share * scale


@triton.jit
def route(scores, bias, chosen, shares, scale, EXPERTS: tl.constexpr, CHOICES: tl.constexpr, GROUPS: tl.constexpr,
          GROUPS_TAKEN: tl.constexpr, ALL: tl.constexpr, SIGMOID: tl.constexpr, BIAS: tl.constexpr,
          NORMALISED: tl.constexpr, BE: tl.constexpr):  # fmt: skip
    """``scores [T, E]`` -> the experts that each row asks, ``chosen [T, k]`` int32, ascending, and their ``shares``:
    see :func:`choice`. Program t does row t."""
    row = tl.program_id(0).to(tl.int64)
    taken, share = choice(scores + row * EXPERTS, bias, scale, EXPERTS, CHOICES, GROUPS, GROUPS_TAKEN, ALL, SIGMOID,
                          BIAS, NORMALISED, BE)  # fmt: skip
    place = row * CHOICES + tl.cumsum(taken.to(tl.int32), 0) - 1
    tl.store(chosen + place, tl.arange(0, BE), mask=taken)
    tl.store(shares + place, share, mask=taken)


@triton.jit(do_not_specialize=["count", "tile_count"])
def sort(chosen, entries, places, tiles, count, tile_count,
         EXPERTS: tl.constexpr, BE: tl.constexpr, CHUNK: tl.constexpr, MB: tl.constexpr):  # fmt: skip
    """``chosen [count]`` -> ``entries`` and ``tiles``, see sorted_rows.py, and ``places``, the inverse of entries.

    Program e does expert e, after it has counted everybody's entries. The tiles follow one another; program 0 says of
    those left over that they are none.
    """
    expert = tl.program_id(0)
    lane = tl.arange(0, CHUNK)
    asked = tl.zeros((BE,), tl.int32)
    for start in range(0, count, CHUNK):
        there = start + lane < count
        asked += tl.histogram(tl.load(chosen + start + lane, mask=there, other=0), BE, mask=there)
    experts = tl.arange(0, BE)
    first = tl.sum(tl.where(experts < expert, asked, 0), 0)
    own = tl.sum(tl.where(experts == expert, asked, 0), 0)
    cut = (asked + MB - 1) // MB
    at = tiles + 4 * tl.sum(tl.where(experts < expert, cut, 0), 0)
    for start in range(0, own, MB):
        tl.store(at, expert)
        tl.store(at + 1, first + start)
        tl.store(at + 2, first + own)
        at += 4
    if expert == 0:
        for tile in range(tl.sum(cut, 0), tile_count):
            tl.store(tiles + 4 * tile, -1)
            tl.store(tiles + 4 * tile + 1, 0)
            tl.store(tiles + 4 * tile + 2, 0)
    done = 0
    for start in range(0, count, CHUNK):
        entry = start + lane
        mine = tl.load(chosen + entry, mask=entry < count, other=-1) == expert
        place = first + done + tl.cumsum(mine.to(tl.int32), 0) - 1
        tl.store(entries + place, entry, mask=mine)
        tl.store(places + entry, place, mask=mine)
        done += tl.sum(mine.to(tl.int32), 0)


@triton.jit
def combine(results, places, shares, shared, out, hidden,
            CHOICES: tl.constexpr, SHARED: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """``out[t] = sum over j of results[places[t, j]] * shares[t, j] (+ shared[t])``, in float32 in the order of j."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = place < hidden
    acc = tl.zeros((BLOCK,), tl.float32)
    for j in tl.static_range(CHOICES):
        at = tl.load(places + row * CHOICES + j).to(tl.int64) * hidden
        value = tl.load(results + at + place, mask=there).to(tl.float32)
        acc += value * tl.load(shares + row * CHOICES + j)
    if SHARED:
        acc += tl.load(shared + row * hidden + place, mask=there).to(tl.float32)
    tl.store(out + row * hidden + place, acc.to(out.dtype.element_ty), mask=there)
