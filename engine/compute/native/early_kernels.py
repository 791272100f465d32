"""Early launch within kernels: letting the next one in, fetching weights into the level-2 cache, and waiting.

A kernel that was launched early runs beside the ones before it until it waits. Before that it reads nothing that a
kernel of its step writes. When it has waited, all kernels before it have ended, because each of them waits.

Importing this needs Triton.

Sources: CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization"; PTX ISA, "griddepcontrol" and
"cp.async.bulk.prefetch".
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

FETCH = tl.constexpr(
    """{ .reg .pred mine;
.reg .b32 thread;
.reg .b64 place;
mov.u32 thread, %tid.x;
setp.lt.s32 mine, thread, $3;
mad.wide.s32 place, thread, $2, $1;
@mine cp.async.bulk.prefetch.L2.global [place], $4;
mov.u32 $0, 0; }"""
)
PIECE = tl.constexpr(4096)
"""Bytes that a thread asks for at once of what comes next."""
SPAN = tl.constexpr(16)
"""Bytes of which addresses and sizes are multiples."""
SLEEP = tl.constexpr("nanosleep.u32 100000; nanosleep.u32 100000; mov.b32 $0, $1;")
"""For some 0.1 to 0.2 milliseconds."""


@triton.jit
def fetch(first, stride, count, size):
    """Have ``count`` pieces of ``size`` bytes brought into the level-2 cache, from ``first`` on, a pointer or a number,
    ``stride`` bytes apart: as many at the most as a program has threads. All of it in multiples of SPAN."""
    tl.inline_asm_elementwise(
        FETCH, "=r,l,r,r,r", [first.to(tl.int64), stride, count, size], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def fetch_each(places, size):
    """Have ``size`` bytes at each of the pointers ``places`` brought into the level-2 cache, in multiples of SPAN."""
    tl.inline_asm_elementwise(
        "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;", "=r,l,r", [places.to(tl.int64), size],
        dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def fetch_ahead(ahead, ahead_bytes):
    """Fetch this program's share of the first bytes of ``ahead``, what a later kernel reads; None: of nothing."""
    if ahead is not None:
        programs = tl.num_programs(0) * tl.num_programs(1) * tl.num_programs(2)
        number = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
        pieces = ahead_bytes // PIECE
        each = tl.cdiv(pieces, programs)
        first = number * each
        place = ahead.to(tl.int64) + first.to(tl.int64) * PIECE
        fetch(place, PIECE, tl.minimum(each, pieces - first), PIECE)


@triton.jit
def let_in():
    """Let the programs of the next kernel start, where there is room, as soon as all of this one's are here."""
    gdc_launch_dependents()


@triton.jit
def wait():
    """Wait until all kernels before have ended, and their results can be read. Once, and in no loop: Triton may move
    loads of a loop before it (triton-lang/triton#11905)."""
    gdc_wait()


@triton.jit
def enter(ahead, ahead_bytes):
    """Let the next kernel in, fetch what comes next, and wait."""
    let_in()
    fetch_ahead(ahead, ahead_bytes)
    wait()


@triton.jit
def late(x, COUNT: tl.constexpr):
    """``x [COUNT]`` int32 += 1, long after the next kernel has been let in."""
    at = tl.arange(0, COUNT)
    let_in()
    wait()
    value = tl.load(x + at)
    value = tl.inline_asm_elementwise(SLEEP, "=r,r", [value], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(x + at, value + 1)


@triton.jit
def after(x, y, COUNT: tl.constexpr, WAITS: tl.constexpr):
    """``y [COUNT]`` int32 = 3 y + x, modulo 2^32. Without WAITS it reads x before the kernel before has written it."""
    at = tl.arange(0, COUNT)
    let_in()
    if WAITS:
        wait()
    value = tl.load(x + at)
    if not WAITS:
        wait()
    tl.store(y + at, tl.load(y + at) * 3 + value)
