"""Tiles of Triton's kernels, and the traits of a device by which kernels are compiled."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from engine.compute.native.gpu import HOPPER, TENSOR_CORES, capability

PATH = "Triton kernel"


class Tile(NamedTuple):
    """Tile of one program: ``rows`` x ``outputs``, in ``slices`` of the input features, one warp each."""

    rows: int
    outputs: int
    slices: int
    stages: int = 2


class WideTile(NamedTuple):
    """Tile of one program of gemm.py: ``outputs`` are 16 a warp at the least and no fewer than ``rows``.

    Each of ``splits`` of the input features has a program, whose sums are added afterwards.
    """

    rows: int
    outputs: int
    warps: int
    stages: int
    splits: int = 1


class FmaTile(NamedTuple):
    """Tile of one program of fma.py, which takes ``halfwords`` of every output feature in one turn of its loop."""

    rows: int
    outputs: int
    halfwords: int
    warps: int


class StripCut(NamedTuple):
    """Cut of resident.py: each ``outputs`` have a program, which asks for the words of ``ahead`` turns at once."""

    rows: int
    outputs: int
    warps: int
    ahead: int


class RingCut(NamedTuple):
    """Cut of resident.py: programs take ``outputs`` after ``outputs``, with room for so many ``pieces`` of them."""

    rows: int
    outputs: int
    warps: int
    pieces: int


Cut = Tile | WideTile | FmaTile | StripCut | RingCut
"""Partition of a product into programs, and the kernel that computes it."""

TENSOR_MEMORY = (10, 11)
"""Compute capabilities whose tensor cores have a memory of their own, for which gemm.py's largest tile is too large."""
SOME, DEEP = Tile(8, 16, 2), Tile(8, 16, 4)
"""The tiles of up to 8 rows: see :func:`plane_tile`."""
FIXED = Tile(16, 16, 2)
"""The tile that serves any number of rows: in the batch-invariant mode there is no other."""
FMA = (FmaTile(1, 4, 512, 2), FmaTile(4, 4, 512, 4), FmaTile(8, 4, 512, 8))
"""The tiles on GPUs for which Triton has no tensor-core code; more rows are multiplied by torch."""
FMA_FIXED = FMA[1]
"""FIXED, there."""

# These numbers of rows are estimates (from bytes, from machine code, from what others measured of theirs).
FEW_ROWS = 16
"""Above this many rows gemm.py multiplies 4-bit weights in planes: it reads them for up to 128 rows at once, FIXED for
16."""
MANY_ROWS = 64
"""Above this many rows the weights of other kinds are dequantised and torch multiplies: each tile of 16 rows reads the
packed weights again, and dequantising costs as much as about nine such reads."""
MANY_PLANE_ROWS = 512
"""The same for weights in planes: then reading them and dequantising costs torch's product little."""
MANY_HOPPER_ROWS = 256
"""The same on Hopper, where torch's product has 790 TFLOP/s and gemm.py reached 263 (512 rows on an H200), and where
tensor cores have a memory of their own, which gemm.py does not use."""
UNDER_WAY = 20 << 10
"""Bytes of weights that a multiprocessor of an H200 must have asked for at all times, or memory waits: 4.28 TB/s times
0.6 to 0.7 µs, shared by 132 (Little's law). Cards with slower memory need fewer."""
SPLITS = 4
MOST_WARPS = 12
"""Warps of a multiprocessor for whose products it has registers."""


def tile(rows: int) -> Tile:
    """The tile for a product of ``rows`` rows: what was fastest for int4 on an H200 (tests/gpu/bench_tiles.py)."""
    return SOME if rows <= SOME.rows else FIXED


def plane_tile(rows: int, outputs: int, block: int, blocks: int, processors: int) -> Tile:
    """The tile for weights in planes, ``blocks`` of ``block`` bytes for each of ``outputs`` output features.

    Each slice has one block of each of its outputs under way, so that a matrix of few outputs is cut into more slices:
    memory would wait for the programs of a multiprocessor otherwise.
    """
    warps = outputs / SOME.outputs / processors * SOME.slices
    wanted = min(MOST_WARPS, UNDER_WAY // (SOME.outputs * block))
    return DEEP if rows <= DEEP.rows and warps < wanted and blocks >= DEEP.slices else tile(rows)


@functools.cache
def wide_tiles(version: tuple[int, int]) -> tuple[WideTile, ...]:
    """The tiles of gemm.py for a compute capability, the largest first: within 99 KB of shared memory (AMD's: 64)."""
    # Hopper's products are asynchronous, for which Triton keeps one buffer more; it has 227 KB, and small tiles wait
    # for memory: 4 stages take 0.64 of the time of 2 at 32 rows on an H200 (tests/gpu/bench_tiles.py).
    hopper = version[0] == HOPPER[0]
    stages = 2 if hopper or torch.version.hip is not None else 3
    deep = 4 if hopper else stages
    shapes = ((128, 128, 8, stages), (64, 128, 8, stages), (64, 64, 4, deep), (32, 64, 4, deep))
    # The products of four planes and their sums may be more than tensor memory holds (512 columns).
    first = 1 if version[0] in TENSOR_MEMORY else 0
    return tuple(WideTile(*shape) for shape in shapes[first:])


def wide_tile(rows: int, outputs: int, tiles: tuple[WideTile, ...], processors: int) -> WideTile:
    """The largest tile that wastes few rows and gives each multiprocessor a program, else the smallest."""
    *large, small, least = tiles
    if rows <= least.rows:
        return least

    def padded(cut: WideTile) -> int:
        return -(-rows // cut.rows) * cut.rows

    for cut in large:
        programs = -(-rows // cut.rows) * -(-outputs // cut.outputs)
        if padded(cut) <= 1.25 * padded(small) and programs >= processors:
            return cut
    return small


def most_plane_rows(version: tuple[int, int]) -> int:
    """The most rows that are multiplied with weights in planes as they are, for a compute capability."""
    return MANY_HOPPER_ROWS if version[0] == HOPPER[0] or version[0] in TENSOR_MEMORY else MANY_PLANE_ROWS


def split(cut: WideTile, rows: int, outputs: int, processors: int) -> WideTile:
    """The tile for ``rows`` rows, in :data:`SPLITS` where it would leave multiprocessors without a program."""
    programs = -(-rows // cut.rows) * -(-outputs // cut.outputs)
    return cut._replace(splits=SPLITS) if rows <= MANY_ROWS and programs < processors else cut


def tensor_cores(device: torch.device) -> bool:
    """Return True if Triton's products use the tensor cores of the device."""
    return capability(device) >= TENSOR_CORES


def aligned(x: Tensor) -> Tensor:
    """``x`` contiguous and at an address that 16 divides: at another, Triton compiles another kernel."""
    x = x.contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()
