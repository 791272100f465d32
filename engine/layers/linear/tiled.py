"""Matrix multiplication whose rows do not know each other, for the batch-invariant mode."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

TILE = 8
"""Rows of every multiplication: one shape, hence one kernel, however many rows there are."""
LEAST_COLUMNS = 16
"""Of a multiplication. With 2 or 3, MKL's AVX-512 kernels sum the rows of one tile in different orders."""


def tiled_matmul(x: Tensor, blocks: Iterable[tuple[int, Tensor]], out_features: int) -> Tensor:
    """``x [T, K]`` times a matrix given as ``(first column, [K, n] float32)`` blocks -> ``[T, out_features]`` float32.

    Rows go through in tiles of a fixed size, the last one padded with zeros, each copied to the same place in memory
    first: shape, strides and alignment are the same at every call, so a row's bits depend on that row alone.
    """
    rows = x.shape[0]
    tiles = -(-rows // TILE)
    padded = x.new_zeros(tiles * TILE, x.shape[1], dtype=torch.float32)
    padded[:rows] = x
    result = padded.new_empty(tiles * TILE, out_features)
    tile = padded.new_empty(TILE, x.shape[1])
    for start, block in blocks:
        columns, block = block.shape[1], _widened(block)
        product = padded.new_empty(TILE, block.shape[1])
        for first in range(0, tiles * TILE, TILE):
            tile.copy_(padded[first : first + TILE])
            torch.mm(tile, block, out=product)
            result[first : first + TILE, start : start + columns] = product[:, :columns]
    return result[:rows]


def tiled_heads_matmul(x: Tensor, weight: Tensor) -> Tensor:
    """``x [T, H, K]``, each head times its own matrix of ``weight [H, K, N]`` float32 -> ``[T, H, N]`` float32.

    As :func:`tiled_matmul`.
    """
    rows, heads, width = x.shape
    columns, weight = weight.shape[2], _widened(weight)
    result = weight.new_empty(rows, heads, weight.shape[2])
    tile, product = weight.new_empty(heads, TILE, width), weight.new_empty(heads, TILE, weight.shape[2])
    for first in range(0, rows, TILE):
        part = x[first : first + TILE].transpose(0, 1)
        tile.zero_()[:, : part.shape[1]] = part
        torch.bmm(tile, weight, out=product)
        result[first : first + TILE] = product[:, : part.shape[1]].transpose(0, 1)
    return result[..., :columns]


def _widened(matrices: Tensor) -> Tensor:
    """``[..., K, n]`` with columns of zeros behind it, where it has few."""
    missing = LEAST_COLUMNS - matrices.shape[-1]
    return F.pad(matrices, (0, missing)) if missing > 0 else matrices
