"""Kernels that ask a card what its memory and its launches cost. Importing this needs Triton.

Each is compiled without a GPU by tests/test_gpu_check.py, which looks for what makes it a measurement.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

LINE = 32
"""Numbers of 4 bytes in a line of 128."""
PIECE = 2048
"""Numbers of 4 bytes that a program of :func:`read_pieces` has under way at once: 8 KB."""
SHARED = 16384
"""Numbers of 4 bytes that a program of :func:`with_shared` keeps in shared memory: 64 KB."""


@triton.jit
def nothing(x):
    """An empty kernel."""


@triton.jit(do_not_specialize=["first", "steps"])
def chase(table, out, first, steps):
    """``steps`` loads of one number, each at the place that the one before says."""
    at = first
    for _ in range(steps):
        at = tl.load(table + at)
    tl.store(out, at)


@triton.jit(do_not_specialize=["turns", "mask"])
def read_pieces(data, out, turns, mask, SIZE: tl.constexpr):  # noqa: N803
    """A program reads pieces of SIZE numbers, and asks for the next one where this one has come.

    ``data [turns, programs, SIZE]`` int32 -> ``out [programs]``, their sums. ``mask`` is 0, which no compiler knows:
    each address waits for the number before, or several turns were under way at once.
    """
    place, at = tl.program_id(0), tl.arange(0, SIZE)
    total = tl.zeros((SIZE,), tl.int32)
    value = tl.zeros((SIZE,), tl.int32)
    for turn in range(turns):
        piece = turn.to(tl.int64) * tl.num_programs(0) + place
        waited = tl.max_contiguous(tl.multiple_of(at + (value & mask), 4), 4)
        value = tl.load(data + piece * SIZE + waited)
        total += value
    tl.store(out + place, tl.sum(total, 0))


@gluon.jit
def with_shared(x, SIZE: gl.constexpr):  # noqa: N803
    """``x [SIZE]`` float32 += 1 by way of shared memory, all of which it has at once."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    at = gl.arange(0, SIZE, layout)
    shared = gl.allocate_shared_memory(gl.float32, [SIZE], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    shared.store(gl.load(x + at))
    gl.store(x + at, shared.load(layout) + 1.0)


def launch_chase(table: Tensor, out: Tensor, first: int, steps: int) -> None:
    """By one warp."""
    chase[1,](table, out, first, steps, num_warps=1, num_stages=1)


def launch_read(data: Tensor, out: Tensor, turns: int) -> None:
    """By as many programs as ``out`` has places."""
    read_pieces[len(out),](data, out, turns, 0, PIECE, num_warps=4, num_stages=1)


def launch_nothing(x: Tensor) -> None:
    """By one program."""
    nothing[1,](x, num_warps=4)


def launch_shared(x: Tensor) -> None:
    """By one program."""
    with_shared[1,](x, SHARED, num_warps=4)
