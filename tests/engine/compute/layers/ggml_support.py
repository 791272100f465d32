"""Random rows of ggml's blocks, with scales that make weights of ordinary size."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.compute.layers.linear.ggml_blocks import (
    BLOCKS,
    IQ1_M,
    MXFP4,
    Q2_K,
    Q3_K,
    Q4_1,
    Q4_K,
    Q5_1,
    Q5_K,
    Q6_K,
    TQ1_0,
    TQ2_0,
)

_HALVES = {Q4_1: (0, 2), Q5_1: (0, 2), Q2_K: (80, 82), Q3_K: (108,), Q4_K: (0, 2), Q5_K: (0, 2), Q6_K: (208,)} | {
    TQ1_0: (52,),
    TQ2_0: (64,),
    IQ1_M: (),
}


def rows_of(type: int, rows: int, in_features: int, seed: int = 0, scale: float | None = None) -> Tensor:
    """``[rows, row_bytes]`` uint8: random bytes and float16 scales of both signs.

    ``scale``: their size; None makes any finite float16.
    """
    generator = torch.Generator().manual_seed(seed)
    block = BLOCKS[type]
    count = rows * in_features // block.weights
    data = torch.randint(0, 256, (count, block.bytes), dtype=torch.uint8, generator=generator)
    if type == MXFP4:
        low, high = (0, 251) if scale is None else (118, 124)
        data[:, 0] = torch.randint(low, high, (count,), dtype=torch.uint8, generator=generator)
        return data.view(rows, -1)
    for at in _HALVES.get(type, (0,)):
        halves = data[:, at : at + 2].clone().view(torch.float16)
        if scale is None:
            halves[~halves.isfinite()] = 0.5
        else:
            halves = (torch.rand(count, 1, generator=generator) * 2 - 1).mul_(scale).half()
        data[:, at : at + 2] = halves.view(torch.uint8)
    if type == IQ1_M:
        size = scale or 60000.0
        _spread((torch.rand(count, generator=generator) * 2 - 1).mul_(size).half(), data)
    return data.view(rows, -1)


def _spread(halves: Tensor, data: Tensor) -> None:
    """Put the float16 of IQ1_M's blocks, a nibble into each of their last four words."""
    bits = halves.view(torch.int16).int()
    for i in range(4):
        data[:, 49 + 2 * i] = data[:, 49 + 2 * i] & 15 | ((bits >> 4 * i & 15) << 4).to(torch.uint8)
