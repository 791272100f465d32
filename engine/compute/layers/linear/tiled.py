"""Matrix multiplication whose rows do not know each other, for the batch-invariant mode."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

TILES = (8, 12, 16, 24)
"""Numbers of rows to choose from."""
TRIED = ((48, 16), (256, 17), (100, 40), (1024, 256))
"""(input, output) features that a tile is tried with."""
LEAST_COLUMNS = 16
"""Columns of a multiplication. With 2 or 3, MKL's AVX-512 kernels sum the rows of one tile in different orders."""


def tile_rows(x: Tensor) -> int:
    """Rows of every multiplication of ``x``: one shape, hence one kernel, however many rows there are."""
    return _on_processor() if x.is_cpu else TILES[0]


@functools.cache
def _on_processor() -> int:
    """The first of :data:`TILES` whose rows all get the same bits: MKL's AVX2 kernels sum the rows of a tile of 8 in
    different orders, its AVX-512 kernels do not."""
    return next((rows for rows in TILES if _alike(rows)), TILES[0])


def _alike(rows: int) -> bool:
    """Return True if equal rows of a tile are multiplied to equal rows."""
    for depth, columns in TRIED:
        pattern = torch.arange(depth * columns, dtype=torch.float32).view(depth, columns)
        row = (0.1 + pattern[:, 0]).sin()
        product = torch.mm(row.expand(rows, depth).contiguous(), (0.7 * pattern).cos())
        if not (product == product[0]).all():
            return False
    return True


def tiled_matmul(x: Tensor, blocks: Iterable[tuple[int, Tensor]], out_features: int) -> Tensor:
    """``x [T, K]`` times a matrix given as ``(first column, [K, n] float32)`` blocks -> ``[T, out_features]`` float32.

    Rows go through in tiles of a fixed size, the last one padded with zeros, each copied to the same place in memory
    first: shape, strides and alignment are the same at every call, so a row's bits depend on that row alone.
    """
    rows, tall = x.shape[0], tile_rows(x)
    tiles = -(-rows // tall)
    padded = x.new_zeros(tiles * tall, x.shape[1], dtype=torch.float32)
    padded[:rows] = x
    result = padded.new_empty(tiles * tall, out_features)
    tile = padded.new_empty(tall, x.shape[1])
    for start, block in blocks:
        columns, block = block.shape[1], _widened(block)
        product = padded.new_empty(tall, block.shape[1])
        for first in range(0, tiles * tall, tall):
            tile.copy_(padded[first : first + tall])
            torch.mm(tile, block, out=product)
            result[first : first + tall, start : start + columns] = product[:, :columns]
    return result[:rows]


def tiled_heads_matmul(x: Tensor, weight: Tensor) -> Tensor:
    """``x [T, H, K]``, each head times its own matrix of ``weight [H, K, N]`` float32 -> ``[T, H, N]`` float32.

    As :func:`tiled_matmul`.
    """
    rows, heads, width = x.shape
    tall = tile_rows(x)
    columns, weight = weight.shape[2], _widened(weight)
    result = weight.new_empty(rows, heads, weight.shape[2])
    tile, product = weight.new_empty(heads, tall, width), weight.new_empty(heads, tall, weight.shape[2])
    for first in range(0, rows, tall):
        part = x[first : first + tall].transpose(0, 1)
        tile.zero_()[:, : part.shape[1]] = part
        torch.bmm(tile, weight, out=product)
        result[first : first + tall] = product[:, : part.shape[1]].transpose(0, 1)
    return result[..., :columns]


def _widened(matrices: Tensor) -> Tensor:
    """``[..., K, n]`` with columns of zeros behind it, where it has few."""
    missing = LEAST_COLUMNS - matrices.shape[-1]
    return F.pad(matrices, (0, missing)) if missing > 0 else matrices
