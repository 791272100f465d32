"""The products of a mixture's experts for a few rows, with 4-bit weights in planes: no row is sorted or waits for one.

A pair is a row and one of the CHOICES experts that it asks, number ``CHOICES * t + j``. Each is multiplied by itself,
so that an expert whom two rows ask is read twice, mostly from the level-2 cache: its programs stand side by side.

Importing this needs Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.compute.layers.experts.kernels import choice
from engine.compute.layers.linear.triton.kernels.planes import _codes, _plane_added, _product
from engine.compute.layers.triton.fused_kernels import gated, rounded


@triton.jit(do_not_specialize=["rows", "outputs", "blocks", "own_outputs"])
def multiply_chosen(x, words, scales, offsets, outer, codebook, table, bias, out,
                    scores, choice_bias, chosen, shares, own_words, own_scales, own_offsets, own_bias, own_out,
                    rows, outputs, inputs, blocks, shift, own_outputs, share_scale, limit, alpha,
                    PLANE: tl.constexpr, SCALE: tl.constexpr, OFFSET: tl.constexpr, LOOKUP: tl.constexpr,
                    OUTER: tl.constexpr, BLOCK: tl.constexpr, PADDED: tl.constexpr, BIAS: tl.constexpr,
                    MB: tl.constexpr, BN: tl.constexpr, SLICES: tl.constexpr,
                    ASM: tl.constexpr, MAGIC: tl.constexpr, KIND: tl.constexpr, OWN: tl.constexpr,
                    EXPERTS: tl.constexpr, CHOICES: tl.constexpr, GROUPS: tl.constexpr, GROUPS_TAKEN: tl.constexpr,
                    ALL: tl.constexpr, SIGMOID: tl.constexpr, CHOICE_BIAS: tl.constexpr, NORMALISED: tl.constexpr,
                    BE: tl.constexpr):  # fmt: skip
    """Grid (pairs, strips): ``out [pairs, N / 2] = KIND(gate) * up`` of each pair, by ``scores [T, EXPERTS]``.

    Every program chooses for its row; those of the first strip leave ``chosen [T, CHOICES]`` int32, ascending, and
    ``shares`` alike: see `experts.kernels.choice`. OWN: T more of them multiply the rows by the shared expert's
    weights, packed alike, into ``own_out [T, own_outputs / 2]``.
    """
    pair = tl.program_id(0)
    row = pair - rows * CHOICES
    expert = pair * 0
    if pair < rows * CHOICES:
        row = pair // CHOICES
        taken, share = choice(scores + row * EXPERTS, choice_bias, share_scale, EXPERTS, CHOICES, GROUPS, GROUPS_TAKEN,
                              ALL, SIGMOID, CHOICE_BIAS, NORMALISED, BE)  # fmt: skip
        asked = taken & (tl.cumsum(taken.to(tl.int32), 0) - 1 == pair % CHOICES)
        expert = tl.sum(tl.where(asked, tl.arange(0, BE), 0), 0)
        if tl.program_id(1) == 0:
            tl.store(chosen + pair, expert)
            tl.store(shares + pair, tl.sum(tl.where(asked, share, 0.0), 0))
    first = expert.to(tl.int64) * outputs
    words += first * (blocks * PLANE)
    scales += first * (blocks * (2 if SCALE == "float32" else 1))
    if OFFSET == "zeros" or OFFSET == "added":
        offsets += first * blocks
    if BIAS:
        bias += first
    place = pair
    if OWN:
        own = pair >= rows * CHOICES
        place = tl.where(own, row, pair)
        words, scales = tl.where(own, own_words, words), tl.where(own, own_scales, scales)
        if OFFSET == "zeros" or OFFSET == "added":
            offsets = tl.where(own, own_offsets, offsets)
        if BIAS:
            bias = tl.where(own, own_bias, bias)
        out, outputs = tl.where(own, own_out, out), tl.where(own, own_outputs, outputs)
    half = outputs // 2
    i, column = tl.arange(0, BN), tl.arange(0, MB)
    # A program has gates, and then the ups of the same channels. One column of its products is real.
    n = tl.program_id(1) * (BN // 2) + i % (BN // 2) + i // (BN // 2) * half
    m = tl.zeros((MB,), tl.int32) + row
    if tl.program_id(1) * (BN // 2) < half:
        result = _product(x, words, scales, offsets, outer, codebook, table, bias, n, m, column == 0, outputs, inputs,
                          blocks, shift, PLANE, SCALE, OFFSET, LOOKUP, OUTER, BLOCK, PADDED, BIAS, MB, BN, SLICES, ASM,
                          MAGIC, None, None, False)  # fmt: skip
        gate, up = tl.split(tl.permute(tl.reshape(rounded(result, out), (2, BN // 2, MB)), (1, 2, 0)))
        channel = tl.program_id(1) * (BN // 2) + tl.arange(0, BN // 2)
        at = out + place.to(tl.int64) * half + channel[:, None] + column[None, :]
        result = gated(gate, up, limit, alpha, out, KIND).to(out.dtype.element_ty)
        tl.store(at, result, mask=(channel < half)[:, None] & (column == 0)[None, :])


@triton.jit
def _strip(x_at, words, scales, offsets, outer, codebook, table, first, block_at, there, real, outputs, inputs, shift,
           PLANE: tl.constexpr, SCALE: tl.constexpr, OFFSET: tl.constexpr, LOOKUP: tl.constexpr, OUTER: tl.constexpr,
           BLOCK: tl.constexpr, PADDED: tl.constexpr, MB: tl.constexpr, BN: tl.constexpr, SLICES: tl.constexpr,
           PARTS: tl.constexpr, ASM: tl.constexpr, MAGIC: tl.constexpr, BLOCKS: tl.constexpr,
           SLOTS: tl.constexpr):  # fmt: skip
    """float32 ``[SLOTS, BN, MB]``: output features ``real [BN]`` of as many experts as there are slots, each by SLICES
    warps for its blocks and PARTS of them for a block.

    ``first [S, BN]`` are the rows of their words, ``block_at [S]`` where their scales begin, and the input of slot s is
    at ``x_at [S, 1, 1]``, in one column; those that are not ``there`` get zeros.
    """
    SIZE: tl.constexpr = SLOTS * SLICES * PARTS
    PART: tl.constexpr = PLANE // PARTS
    s, column = tl.arange(0, SIZE), tl.arange(0, MB)
    p = (s % PARTS * PART)[:, None] + tl.arange(0, PART)[None, :]
    word_at = words + first[:, :, None] * (BLOCKS * PLANE) + p[:, None, :]
    x_at += (column * 0)[None, None, :]
    mask = (there[:, None] & (column == 0)[None, :])[:, None, :]
    acc = tl.zeros((SIZE, BN, MB), tl.float32)
    for start in range(0, BLOCKS, SLICES):
        block = start + s // PARTS % SLICES
        live = there & (block < BLOCKS)
        block = tl.minimum(block, BLOCKS - 1)
        w = tl.load(word_at + block[:, None, None] * PLANE, mask=live[:, None, None], other=0)
        if ASM != "":
            value = tl.inline_asm_elementwise(
                ASM, "=r,=r,=r,=r,r", [w], dtype=(x_at.dtype.element_ty,) * 4, is_pure=True, pack=2
            )
        for plane in tl.static_range(4):
            k = ((block * 4 + plane) * PLANE)[:, None] + p
            if PADDED:
                k = tl.minimum(k, inputs - 1)
            part_of_x = tl.load(x_at + k[:, :, None], mask=mask, other=0.0)
            if ASM != "":
                part_of_w = value[plane]
            else:
                part_of_w = _codes(w, table, x_at, plane, LOOKUP)
            acc = _plane_added(acc, part_of_w, part_of_x, scales, offsets, outer, codebook, (block_at + block)[:, None],
                               live[:, None], real[None, :], outputs, inputs, shift, plane, PLANE, SCALE, OFFSET, OUTER,
                               BLOCK, MAGIC)  # fmt: skip
    return tl.sum(tl.reshape(acc, (SLOTS, SLICES * PARTS, BN, MB)), 1)


@triton.jit(do_not_specialize=["outputs"])
def multiply_summed(x, words, scales, offsets, outer, codebook, table, bias, stream,
                    chosen, shares, own_x, own_words, own_scales, own_offsets, own_bias, opened, added,
                    outputs, inputs, shift, own_inputs, by,
                    PLANE: tl.constexpr, SCALE: tl.constexpr, OFFSET: tl.constexpr, LOOKUP: tl.constexpr,
                    OUTER: tl.constexpr, BLOCK: tl.constexpr, PADDED: tl.constexpr, BIAS: tl.constexpr,
                    MB: tl.constexpr, BN: tl.constexpr, SLICES: tl.constexpr,
                    ASM: tl.constexpr, MAGIC: tl.constexpr, BLOCKS: tl.constexpr, CHOICES: tl.constexpr,
                    SLOTS: tl.constexpr, SCALED: tl.constexpr, OWN: tl.constexpr, OWN_BLOCKS: tl.constexpr,
                    OWN_SLICES: tl.constexpr, OWN_PARTS: tl.constexpr, OWN_PADDED: tl.constexpr, OPENED: tl.constexpr,
                    ADDED: tl.constexpr):  # fmt: skip
    """Grid (strips, T): ``stream [T, N] += by * sum over j of shares[t, j] * x[CHOICES * t + j] W_chosen[t, j]^T``.

    SLOTS experts of a row are multiplied at a time, each by SLICES warps, and their results added in float32 in one
    order; the last of few are none. OWN: so is ``own_x [T, own_inputs]`` by the shared expert's weights, packed alike,
    by all warps, times the sigmoid of ``opened [T]`` where OPENED. ADDED: ``added [T, N]`` is, instead. SCALED: by is
    not 1. Roundings are those of a kernel for each part.
    """
    n, row = tl.program_id(0) * BN + tl.arange(0, BN), tl.program_id(1)
    real = tl.where(n < outputs, n, 0)
    s, column = tl.arange(0, SLOTS * SLICES), tl.arange(0, MB)
    total = tl.zeros((BN, MB), tl.float32)
    if OWN:
        x_at = own_x + (s * 0 + row).to(tl.int64)[:, None, None] * own_inputs
        first = tl.zeros((SLOTS * SLICES, BN), tl.int64) + real[None, :]
        own = _strip(x_at, own_words, own_scales, own_offsets, outer, codebook, table, first, s * 0, s >= 0, real,
                     outputs, own_inputs, shift, PLANE, SCALE, OFFSET, LOOKUP, OUTER, BLOCK, OWN_PADDED, MB, BN,
                     OWN_SLICES, OWN_PARTS, ASM, MAGIC, OWN_BLOCKS, 1)  # fmt: skip
        own = tl.reshape(own, (BN, MB))
        if BIAS:
            own += tl.load(own_bias + real).to(tl.float32)[:, None]
        own = rounded(own, stream)
        if OPENED:
            share = 1.0 / (1.0 + tl.exp(-rounded(tl.load(opened + row), stream)))
            own = rounded(own * rounded(share, stream), stream)
    for group in tl.static_range((CHOICES + SLOTS - 1) // SLOTS):
        j = group * SLOTS + s // SLICES
        there = j < CHOICES
        expert = tl.load(chosen + row * CHOICES + j, mask=there, other=0)
        first = expert.to(tl.int64)[:, None] * outputs + real[None, :]
        x_at = x + (row * CHOICES + j).to(tl.int64)[:, None, None] * inputs
        result = _strip(x_at, words, scales, offsets, outer, codebook, table, first, expert * BLOCKS, there, real,
                        outputs, inputs, shift, PLANE, SCALE, OFFSET, LOOKUP, OUTER, BLOCK, PADDED, MB, BN, SLICES, 1,
                        ASM, MAGIC, BLOCKS, SLOTS)  # fmt: skip
        j = group * SLOTS + tl.arange(0, SLOTS)
        share = tl.load(shares + row * CHOICES + j, mask=j < CHOICES, other=0.0)
        if BIAS:
            expert = tl.load(chosen + row * CHOICES + j, mask=j < CHOICES, other=0)
            result += tl.load(bias + expert.to(tl.int64)[:, None] * outputs + real[None, :]).to(tl.float32)[:, :, None]
        total += tl.sum(rounded(result, stream) * share[:, None, None], 0)
    if OWN:
        total += own
    at = stream + row.to(tl.int64) * outputs + n[:, None] + (column * 0)[None, :]
    kept = (n < outputs)[:, None] & (column == 0)[None, :]
    if ADDED:
        at_added = added + row.to(tl.int64) * outputs + n[:, None] + (column * 0)[None, :]
        total += tl.load(at_added, mask=kept, other=0.0).to(tl.float32)
    total = rounded(total, stream)
    if SCALED:
        total = rounded(total * by, stream)
    total += tl.load(at, mask=kept, other=0.0).to(tl.float32)
    tl.store(at, total.to(stream.dtype.element_ty), mask=kept)
