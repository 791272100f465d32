"""Cases of chunks and trees, of which parts of the keys are read."""

from __future__ import annotations

import torch

from tests.engine.compute.attention.attention_cases import Case

TREE = (-1, 0, 0, 1, 1, -1, 5, 2)


def cases_of(
    shapes: list[tuple[int, int, bool]],
    heads: tuple[int, int] = (4, 2),
    dtype: torch.dtype = torch.float32,
    width: int = 16,
) -> list[Case]:
    generator = torch.Generator().manual_seed(len(shapes))
    return [
        Case(start, len(TREE) if tree else rows, TREE if tree else None).fill(*heads, width, dtype, generator)
        for start, rows, tree in shapes
    ]
