"""Random rows of ggml's blocks, with scales that make weights of ordinary size."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.layers.linear.ggml_blocks import BLOCKS, MXFP4, Q2_K, Q3_K, Q4_1, Q4_K, Q5_1, Q5_K, Q6_K

_HALVES = {Q4_1: (0, 2), Q5_1: (0, 2), Q2_K: (80, 82), Q3_K: (108,), Q4_K: (0, 2), Q5_K: (0, 2), Q6_K: (208,)}


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
    return data.view(rows, -1)
