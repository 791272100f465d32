"""Kernels for products of up to 8 rows with 4-bit weights in planes, which ask for weights before they need x.

In Gluon, where a tensor's layout is chosen by hand: words lie in memory so that each thread of a tensor-core operand
finds eight of a row's halfwords side by side, and gets them by one load of 16 bytes, without shared memory. A program
has *strips* of :data:`STRIP` output features; each of its warps takes every WARPS-th block of the input features,
TURNS of them, and the sums of warps meet at the end, always in the same order.

* :func:`strip`: one strip a program, the words of AHEAD turns in registers before x is read;
* :func:`ring`: a program takes one strip after the other, whose words are copied to shared memory RING pieces ahead.

Weights are those of planes.py whose codes are numbers, with planes of 64 and more, and so are sums, their factors in
float32 and what is rounded. The order in which a tensor core adds up products differs, and so does the number of warps.

Importing this needs Triton with Gluon.
"""

from __future__ import annotations

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from triton.language.extra.cuda import gdc_wait

from engine.compute.layers.triton.fused_kernels import activated, rounded

STRIP = gl.constexpr(16)
"""Output features that a tensor core multiplies at once."""
ROWS = gl.constexpr(8)
"""Rows of x, the same."""


@gluon.constexpr_function
def _shared_layout(plane, warps, rows):
    """Layout of a plane of x in shared memory ``[warps, plane, rows]``, ``[warps, plane]`` for one row.

    An instruction of the tensor cores takes a pair of features from the first half of 64, and the one 32 after it. Both
    lie side by side, so that a load gives the registers in their order. Of two rows the odd one has its two vectors of
    a thread the other way round: else their threads would meet in the same banks.
    """
    rank = 2 if rows == 1 else 3
    bases = [[0, feature, 0][:rank] for feature in (1, 32, 2, 4, 8, 16, 64) if feature < plane]
    bases += [[0, 4 if row == 1 else 0, row] for row in (1, 2, 4) if row < rows]
    return gl.SharedLinearLayout(bases + [[warp, 0, 0][:rank] for warp in (1, 2, 4) if warp < warps])


@gluon.jit
def _strip_row(i, outputs, KIND: gl.constexpr):
    """Output feature i of a strip, counted from its first; with gates every second one is the up of the one before."""
    if KIND != "":
        i = i // 2 + i % 2 * (outputs // 2)
    return i


@gluon.jit
def _first_row(number, KIND: gl.constexpr):
    """The first output feature of a strip."""
    if KIND != "":
        first = number * (STRIP // 2)
    else:
        first = number * STRIP
    return first


@gluon.jit
def _word_places(turn, outputs, blocks, L: gl.constexpr, PLANE: gl.constexpr, WARPS: gl.constexpr,
                 KIND: gl.constexpr):  # fmt: skip
    """Places of a turn's words from a strip's first ``[WARPS, STRIP, PLANE]``, and whether their block exists."""
    s = gl.arange(0, WARPS, gl.SliceLayout(1, gl.SliceLayout(2, L)))
    i = gl.arange(0, STRIP, gl.SliceLayout(0, gl.SliceLayout(2, L)))
    p = gl.arange(0, PLANE, gl.SliceLayout(0, gl.SliceLayout(1, L)))
    block = turn * WARPS + s
    row = _strip_row(i, outputs, KIND)[None, :, None] * (blocks * PLANE)
    return row + (block * PLANE)[:, None, None] + p[None, None, :], (block < blocks)[:, None, None]


@gluon.jit
def _groups(scales, offsets, first, turn, outputs, blocks, C: gl.constexpr, SCALE: gl.constexpr, OFFSET: gl.constexpr,
            WARPS: gl.constexpr, KIND: gl.constexpr):  # fmt: skip
    """A turn's words of scales, and of zero-points where there are any, for the strip from output feature ``first``
    on."""
    s = gl.arange(0, WARPS, gl.SliceLayout(1, gl.SliceLayout(2, C)))
    i = gl.arange(0, STRIP, gl.SliceLayout(0, gl.SliceLayout(2, C)))
    block = (turn * WARPS + s)[:, None]
    live = block < blocks
    at = block * outputs + (first + _strip_row(i, outputs, KIND))[None, :]
    if SCALE == "float32":
        found = (gl.load(scales + at * 2, mask=live, other=0), gl.load(scales + at * 2 + 1, mask=live, other=0))
    else:
        found = (gl.load(scales + at, mask=live, other=0),)
    if OFFSET == "zeros":
        found = found + (gl.load(offsets + at, mask=live, other=0),)
    return found


@gluon.jit
def _scale(held, j: gl.constexpr, SCALE: gl.constexpr):
    """float32 scales of plane j; 0 where there is no block, whose words are 0."""
    if SCALE == "float32":
        scale = (held[j // 2] >> (32 * (j % 2))).to(gl.int32).to(gl.float32, bitcast=True)
    else:
        DTYPE: gl.constexpr = gl.float16 if SCALE == "float16" else gl.bfloat16
        scale = (held[0] >> (16 * j)).to(gl.int16).to(DTYPE, bitcast=True).to(gl.float32)
    return scale


@gluon.jit
def _part_of_row(x, part: gl.constexpr, inputs, L: gl.constexpr, PLANE: gl.constexpr, WARPS: gl.constexpr):
    """Plane ``part % 4`` of turn ``part // 4`` of a vector ``[WARPS, PLANE]``; 0 beyond its end."""
    s = gl.arange(0, WARPS, gl.SliceLayout(1, L))
    p = gl.arange(0, PLANE, gl.SliceLayout(0, L))
    k = (((part // 4 * WARPS + s) * 4 + part % 4) * PLANE)[:, None] + p[None, :]
    return gl.load(x + k, mask=k < inputs, other=0.0)


@gluon.jit
def _kept_row(x, norm, eps, inputs, PLANE: gl.constexpr, WARPS: gl.constexpr, TURNS: gl.constexpr, NORM: gl.constexpr):
    """One row of x in shared memory, ``[WARPS, PLANE]`` for each plane of each turn; its norm with NORM, rounded."""
    EACH: gl.constexpr = PLANE // 4
    L: gl.constexpr = gl.BlockedLayout([1, 4], [32 // EACH, EACH], [WARPS, 1], [1, 0])
    S: gl.constexpr = _shared_layout(PLANE, WARPS, 1)
    kept = ()
    parts = ()
    for part in gl.static_range(TURNS * 4):
        parts = parts + (_part_of_row(x, part, inputs, L, PLANE, WARPS),)
    if NORM:
        squares = gl.zeros([WARPS, PLANE], gl.float32, L)
        for part in gl.static_range(TURNS * 4):
            row = parts[part].to(gl.float32)
            squares += row * row
        share = gl.rsqrt(gl.sum(gl.sum(squares, 1), 0) / inputs + eps)
        for part in gl.static_range(TURNS * 4):
            factor = _part_of_row(norm, part, inputs, L, PLANE, WARPS).to(gl.float32)
            row = (parts[part].to(gl.float32) * share * factor).to(x.dtype.element_ty)
            kept = kept + (gl.allocate_shared_memory(x.dtype.element_ty, [WARPS, PLANE], S, row),)
    else:
        for part in gl.static_range(TURNS * 4):
            kept = kept + (gl.allocate_shared_memory(x.dtype.element_ty, [WARPS, PLANE], S, parts[part]),)
    return kept


@gluon.jit
def _some_rows(x, turn, j: gl.constexpr, rows, inputs, B: gl.constexpr, PLANE: gl.constexpr, WARPS: gl.constexpr):
    """Plane j of a turn of x ``[WARPS, PLANE, ROWS]``; what follows the last row is that row again."""
    s = gl.arange(0, WARPS, gl.SliceLayout(1, gl.SliceLayout(2, B)))
    p = gl.arange(0, PLANE, gl.SliceLayout(0, gl.SliceLayout(2, B)))
    m = gl.arange(0, ROWS, gl.SliceLayout(0, gl.SliceLayout(1, B)))
    k = (((turn * WARPS + s) * 4 + j) * PLANE)[:, None, None] + p[None, :, None]
    at = gl.minimum(m, rows - 1)[None, None, :] * inputs + k
    return gl.load(x + at, mask=k < inputs, other=0.0)


@gluon.jit
def _kept_rows(x, rows, inputs, PLANE: gl.constexpr, WARPS: gl.constexpr, TURNS: gl.constexpr):
    """Rows of x in shared memory, ``[WARPS, PLANE, ROWS]`` for each plane of each turn, as :func:`_some_rows` has
    them."""
    EACH: gl.constexpr = PLANE // 8
    AT_ONCE: gl.constexpr = 32 // EACH
    L: gl.constexpr = gl.BlockedLayout([1, 8, 1], [1, EACH, AT_ONCE], [WARPS, 1, 1], [1, 2, 0])
    S: gl.constexpr = _shared_layout(PLANE, WARPS, ROWS)
    kept = ()
    for turn in gl.static_range(TURNS):
        parts = ()
        for j in gl.static_range(4):
            parts = parts + (_some_rows(x, turn, j, rows, inputs, L, PLANE, WARPS),)
        for j in gl.static_range(4):
            kept = kept + (gl.allocate_shared_memory(x.dtype.element_ty, [WARPS, PLANE, ROWS], S, parts[j]),)
    return kept


@gluon.jit
def _plane_of_x(x, kept, turn: gl.constexpr, j: gl.constexpr, rows, inputs, B: gl.constexpr, PLANE: gl.constexpr,
                WARPS: gl.constexpr, ONE: gl.constexpr, KEPT: gl.constexpr):  # fmt: skip
    """Plane j of a turn of x ``[WARPS, PLANE, ROWS]``, the one row in every column, from where it is kept."""
    if ONE:
        row = kept[turn * 4 + j].load(gl.SliceLayout(2, B))
        plane = tl.broadcast_to(row[:, :, None], (WARPS, PLANE, ROWS))
    elif KEPT:
        plane = kept[turn * 4 + j].load(B)
    else:
        plane = _some_rows(x, turn, j, rows, inputs, B, PLANE, WARPS)
    return plane


@gluon.jit
def _turn(acc, w, groups, x, kept, turn, rows, inputs, A: gl.constexpr, B: gl.constexpr, C: gl.constexpr,
          PLANE: gl.constexpr, SCALE: gl.constexpr, OFFSET: gl.constexpr, ASM: gl.constexpr, MAGIC: gl.constexpr,
          WARPS: gl.constexpr, ONE: gl.constexpr, KEPT: gl.constexpr):  # fmt: skip
    """``acc [WARPS, STRIP, ROWS]`` and the products of one turn's words ``w``."""
    NUMBER: gl.constexpr = x.dtype.element_ty
    none = gl.zeros([WARPS, STRIP, ROWS], gl.float32, C)
    value = gl.inline_asm_elementwise(ASM, "=r,=r,=r,=r,r", [w], dtype=(x.dtype.element_ty,) * 4, is_pure=True, pack=2)
    for j in gl.static_range(4):
        part_of_x = _plane_of_x(x, kept, turn, j, rows, inputs, B, PLANE, WARPS, ONE, KEPT)
        part = mma_v2(value[j], part_of_x, none, input_precision="ieee")
        # The sum of x over the group, by the tensor cores too: every row of this product is that sum.
        total = mma_v2(gl.full([WARPS, STRIP, PLANE], 1.0, NUMBER, A), part_of_x, none, input_precision="ieee")
        if OFFSET == "zeros":
            zero = ((groups[len(groups) - 1] >> (8 * j)) & 255).to(gl.float32) + MAGIC
            part -= zero[:, :, None] * total
        else:
            part -= (MAGIC + 8.0) * total
        acc += part * _scale(groups, j, SCALE)[:, :, None]
    return acc


@gluon.jit
def _store(acc, bias, out, first, rows, outputs, by, WARPS: gl.constexpr, BIAS: gl.constexpr, KIND: gl.constexpr,
           ADDED: gl.constexpr, SCALED: gl.constexpr):  # fmt: skip
    """The results of a strip: the sums of warps, and what surrounds the product as in planes.py."""
    # A thread has the sums of all warps, of two neighbours.
    L: gl.constexpr = gl.BlockedLayout([WARPS, 2, 1], [1, 4, 8], [1, WARPS, 1], [2, 1, 0])
    R: gl.constexpr = gl.SliceLayout(0, L)
    PLAIN: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0])
    result = gl.sum(gl.allocate_shared_memory(gl.float32, [WARPS, STRIP, ROWS], PLAIN, acc).load(L), 0)
    if BIAS:
        n = first + _strip_row(gl.arange(0, STRIP, gl.SliceLayout(1, R)), outputs, KIND)
        result += gl.load(bias + n).to(gl.float32)[:, None]
    result = rounded(result, out)
    if KIND != "":
        gate, up = gl.split(gl.permute(gl.reshape(result, (STRIP // 2, 2, ROWS)), (0, 2, 1)))
        result = rounded(activated(gate, KIND), out) * up
        outputs = outputs // 2
    D: gl.constexpr = result.type.layout
    i = gl.arange(0, STRIP // 2 if KIND != "" else STRIP, gl.SliceLayout(1, D))
    m = gl.arange(0, ROWS, gl.SliceLayout(0, D))
    at = m[None, :] * outputs + (first + i)[:, None]
    real = (m < rows)[None, :]
    if ADDED:
        if SCALED:
            result = rounded(result * by, out)
        result += gl.load(out + at, mask=real, other=0.0).to(gl.float32)
    gl.store(out + at, result.to(out.dtype.element_ty), mask=real)


@gluon.jit(do_not_specialize=["rows", "outputs", "blocks"])
def strip(x, words, scales, offsets, outer, codebook, table, bias, out,
          rows, outputs, inputs, blocks, shift, norm, eps, by,
          PLANE: gl.constexpr, SCALE: gl.constexpr, OFFSET: gl.constexpr, LOOKUP: gl.constexpr,
          OUTER: gl.constexpr, BLOCK: gl.constexpr, PADDED: gl.constexpr, BIAS: gl.constexpr,
          ASM: gl.constexpr, MAGIC: gl.constexpr,
          WARPS: gl.constexpr, TURNS: gl.constexpr, AHEAD: gl.constexpr, ONE: gl.constexpr,
          NORM: gl.constexpr, KIND: gl.constexpr, ADDED: gl.constexpr, SCALED: gl.constexpr,
          WAITS: gl.constexpr):  # fmt: skip
    """Grid (N / STRIP): ``out [rows, N] = x [rows, K] W^T + bias``, and what surrounds it as `planes.multiply_fused`
    has it. ONE: there is one row, which is kept in shared memory; more are read where they are multiplied."""
    C: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [WARPS, 1, 1], [1, 16, 8])
    A: gl.constexpr = gl.DotOperandLayout(0, C, 8)
    B: gl.constexpr = gl.DotOperandLayout(1, C, 8)
    first = _first_row(gl.program_id(0), KIND)
    strip_words = words + first.to(gl.int64) * (blocks * PLANE)
    asked = ()
    for turn in gl.static_range(AHEAD):
        at, live = _word_places(turn, outputs, blocks, A, PLANE, WARPS, KIND)
        asked = asked + (gl.load(strip_words + at, mask=live, other=0),)
    groups = ()
    for turn in gl.static_range(AHEAD):
        groups = groups + (_groups(scales, offsets, first, turn, outputs, blocks, C, SCALE, OFFSET, WARPS, KIND),)
    # Until here nothing was read that a step writes. No load is moved across the wait.
    if WAITS:
        gdc_wait()
    kept = 0
    if ONE:
        kept = _kept_row(x, norm, eps, inputs, PLANE, WARPS, TURNS, NORM)
    acc = gl.zeros([WARPS, STRIP, ROWS], gl.float32, C)
    for turn in gl.static_range(TURNS):
        acc = _turn(acc, asked[turn], groups[turn], x, kept, turn, rows, inputs, A, B, C, PLANE,
                    SCALE, OFFSET, ASM, MAGIC, WARPS, ONE, False)  # fmt: skip
        if turn + AHEAD < TURNS:
            # Else the compiler asks for all of them at once, for which there are no registers.
            tl.debug_barrier()
            at, live = _word_places(turn + AHEAD, outputs, blocks, A, PLANE, WARPS, KIND)
            asked = asked + (gl.load(strip_words + at, mask=live, other=0),)
            groups = groups + (
                _groups(scales, offsets, first, turn + AHEAD, outputs, blocks, C, SCALE, OFFSET, WARPS, KIND),
            )
    _store(acc, bias, out, first, rows, outputs, by, WARPS, BIAS, KIND, ADDED, SCALED)


@gluon.jit
def _copy(words, buffer, piece, pieces, outputs, blocks, PLANE: gl.constexpr, WARPS: gl.constexpr,
          TURNS: gl.constexpr, RING: gl.constexpr, KIND: gl.constexpr):  # fmt: skip
    """Have the words of a piece copied into its place of the ring; none after the last piece."""
    EACH: gl.constexpr = PLANE // 8
    L: gl.constexpr = gl.BlockedLayout([1, 1, 8], [1, 32 // EACH, EACH], [WARPS, 1, 1], [2, 1, 0])
    number = gl.program_id(0) + piece // TURNS * gl.num_programs(0)
    at, live = _word_places(piece % TURNS, outputs, blocks, L, PLANE, WARPS, KIND)
    strip_words = words + _first_row(number, KIND).to(gl.int64) * (blocks * PLANE)
    async_copy.async_copy_global_to_shared(buffer.index(piece % RING), strip_words + at, mask=live & (piece < pieces))
    async_copy.commit_group()


@gluon.jit(do_not_specialize=["rows", "outputs", "blocks"])
def ring(x, words, scales, offsets, outer, codebook, table, bias, out,
         rows, outputs, inputs, blocks, shift, norm, eps, by,
         PLANE: gl.constexpr, SCALE: gl.constexpr, OFFSET: gl.constexpr, LOOKUP: gl.constexpr,
         OUTER: gl.constexpr, BLOCK: gl.constexpr, PADDED: gl.constexpr, BIAS: gl.constexpr,
         ASM: gl.constexpr, MAGIC: gl.constexpr,
         WARPS: gl.constexpr, TURNS: gl.constexpr, RING: gl.constexpr, ONE: gl.constexpr,
         NORM: gl.constexpr, KIND: gl.constexpr, ADDED: gl.constexpr, SCALED: gl.constexpr,
         WAITS: gl.constexpr):  # fmt: skip
    """Grid (as many as there are multiprocessors): same as :func:`strip`, one strip after the other.

    A piece is a turn of a strip. x is kept in shared memory; scales come a piece ahead, into registers.
    """
    C: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [WARPS, 1, 1], [1, 16, 8])
    A: gl.constexpr = gl.DotOperandLayout(0, C, 8)
    B: gl.constexpr = gl.DotOperandLayout(1, C, 8)
    S: gl.constexpr = gl.SwizzledSharedLayout(32, 1, 2, [2, 1, 0])
    buffer = gl.allocate_shared_memory(gl.int16, [RING, WARPS, STRIP, PLANE], S)
    program, programs = gl.program_id(0), gl.num_programs(0)
    strips = (outputs // STRIP - program + programs - 1) // programs
    for early in gl.static_range(RING - 1):
        _copy(words, buffer, early, strips * TURNS, outputs, blocks, PLANE, WARPS, TURNS, RING, KIND)
    groups = _groups(scales, offsets, _first_row(program, KIND), 0, outputs, blocks, C, SCALE, OFFSET, WARPS, KIND)
    # Until here nothing was read that a step writes. No load is moved across the wait.
    if WAITS:
        gdc_wait()
    if ONE:
        kept = _kept_row(x, norm, eps, inputs, PLANE, WARPS, TURNS, NORM)
    else:
        kept = _kept_rows(x, rows, inputs, PLANE, WARPS, TURNS)
    for number in range(strips):
        first = _first_row(program + number * programs, KIND)
        acc = gl.zeros([WARPS, STRIP, ROWS], gl.float32, C)
        for turn in gl.static_range(TURNS):
            piece = number * TURNS + turn
            present = groups
            if turn + 1 < TURNS:
                following, next_turn = first, turn + 1
            else:
                # After the last strip the first one's are asked for again.
                ahead = gl.where(number + 1 < strips, number + 1, 0)
                following, next_turn = _first_row(program + ahead * programs, KIND), 0
            # Before a barrier, as the compiler would move it to its use.
            groups = _groups(scales, offsets, following, next_turn, outputs, blocks, C, SCALE, OFFSET, WARPS, KIND)
            _copy(words, buffer, piece + RING - 1, strips * TURNS, outputs, blocks, PLANE, WARPS, TURNS, RING, KIND)
            async_copy.wait_group(RING - 1)
            w = buffer.index(piece % RING).load(A)
            acc = _turn(acc, w, present, x, kept, turn, rows, inputs, A, B, C, PLANE,
                        SCALE, OFFSET, ASM, MAGIC, WARPS, ONE, True)  # fmt: skip
        _store(acc, bias, out, first, rows, outputs, by, WARPS, BIAS, KIND, ADDED, SCALED)
