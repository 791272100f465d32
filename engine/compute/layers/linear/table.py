"""4-bit codes that look up a table of 16 values, times the largest magnitude of their block (NF4 and FP4).

Dettmers et al. 2023, QLoRA. Blocks run along the flattened ``[N, K]``, so one may cross the end of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from engine.compute.layers.linear.base import LinearShape, Target
from engine.compute.layers.linear.blocks import scratch
from engine.compute.layers.linear.blockwise import BlockwiseLinear


class TableWeights(Protocol):
    """A packed module of a checkpoint, in the tensors of :class:`TableLinear`."""

    out_features: int
    packed: Tensor
    table: Tensor
    absmax: Tensor
    nested_absmax: Tensor | None
    nested_table: Tensor | None


class TableLinear(BlockwiseLinear):
    """``packed [ceil(N K / 2)]`` uint8, the first of two codes in the high nibble; ``table [16]`` float32.

    ``absmax [ceil(N K / block)]`` float32, or uint8 with ``nested_absmax`` and ``nested_table [256]``, float32.
    """

    kind = "table4"
    as_in_file = True
    held = ("packed", "table", "absmax", "nested_absmax", "nested_table")

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        super().__init__(shape, target, device)
        self.block, self.nested = shape.group, shape.nested
        self.count = shape.in_features * shape.out_features
        blocks = -(-self.count // self.block)
        self.packed = torch.empty((self.count + 1) // 2, dtype=torch.uint8, device=device)
        self.table = torch.empty(16, device=device)
        magnitudes = torch.float32 if self.nested is None else torch.uint8
        self.absmax = torch.empty(blocks, dtype=magnitudes, device=device)
        self.nested_absmax: Tensor | None = None
        self.nested_table: Tensor | None = None
        if self.nested is not None:
            self.nested_absmax = torch.empty(-(-blocks // self.nested.size), device=device)
            self.nested_table = torch.empty(256, device=device)

    def fill(self, parts: Sequence[TableWeights]) -> None:
        """Copy the parts: one table, whole blocks in each, and a single part where ``absmax`` is nested."""
        first = parts[0]
        self.table.copy_(first.table)
        if self.nested_absmax is not None and self.nested_table is not None:
            assert first.nested_absmax is not None
            assert first.nested_table is not None
            self.nested_absmax.copy_(first.nested_absmax)
            self.nested_table.copy_(first.nested_table)
        packed = self.packed.split([len(part.packed) for part in parts])
        absmax = self.absmax.split([len(part.absmax) for part in parts])
        for part, codes, magnitudes in zip(parts, packed, absmax, strict=True):
            codes.copy_(part.packed)
            magnitudes.copy_(part.absmax)

    def rows(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        first, last = start * self.in_features, stop * self.in_features
        low, high = first // self.block, -(-last // self.block)
        # Whole blocks, so whole bytes too: a block has an even number of codes.
        used = self.packed[low * self.block // 2 : high * self.block // 2]
        weight = self.buffer("codes", (high - low) * self.block)
        flat = weight[: 2 * len(used)]
        places = scratch.take("table places", (len(used),), torch.int32, self.device)
        # Two numbers as one of 8 bytes: torch picks single numbers four times as fast as rows of two.
        torch.index_select(self._pairs(), 0, places.copy_(used), out=flat.view(torch.int64))
        weight.view(-1, self.block).mul_(self._magnitudes(low, high)[:, None])
        return weight[first - low * self.block :][: last - first].view(stop - start, self.in_features)

    def _pairs(self) -> Tensor:
        """``[256]`` int64: what the two codes of each byte stand for, a float32 and after it another."""
        return torch.stack((self.table.repeat_interleave(16), self.table.repeat(16)), 1).view(torch.int64).flatten()

    def _magnitudes(self, low: int, high: int) -> Tensor:
        """float32 of blocks ``[low, high)``."""
        absmax = self.absmax[low:high]
        if self.nested is None or self.nested_table is None or self.nested_absmax is None:
            return absmax
        outer = torch.arange(low, high, device=self.device) // self.nested.size
        return self.nested_table[absmax.int()] * self.nested_absmax[outer] + self.nested.offset
