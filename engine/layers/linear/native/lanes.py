"""The layout of Kvasir's native code: 64 output features side by side, so that each has a lane of a vector."""

from __future__ import annotations

from torch import Tensor

from engine.native.library import Library, loaded

BLOCK = 64
"""Output features whose values lie together: four vectors of them, so that memory is read as one stream."""


def prepared(codes: Tensor) -> Library:
    """The library that will read ``codes [blocks, rows, 64]``, not yet written: huge pages, and no feature in the last
    block's lanes."""
    library = loaded()
    library.prefer_huge_pages(codes)
    codes[-1].zero_()
    return library


def put(values: Tensor, packed: Tensor, start: int) -> None:
    """``values [rows, n]`` of the features from ``start`` on into ``packed [blocks, rows, 64]``."""
    first, lane = divmod(start, BLOCK)
    if lane:
        head = min(BLOCK - lane, values.shape[1])
        packed[first, :, lane : lane + head] = values[:, :head]
        values, first = values[:, head:], first + 1
    whole, rest = divmod(values.shape[1], BLOCK)
    blocks = values[:, : whole * BLOCK].view(values.shape[0], whole, BLOCK)
    packed[first : first + whole] = blocks.transpose(0, 1)
    if rest:
        packed[first + whole, :, :rest] = values[:, whole * BLOCK :]
