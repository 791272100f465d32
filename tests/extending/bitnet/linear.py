"""Ternary weights: layers of -1, 0 and 1 with one scale, four to a byte as BitNet's files have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.compute.layers.linear.base import LinearShape, PackedLinear, Target


class TernaryPart(NamedTuple):
    """A module: ``codes`` uint8 ``[N / 4, K]``, the rows' quarters from the lowest bits on, and what they are divided
    by."""

    out_features: int
    codes: Tensor
    divisor: float


class TernaryLinear(PackedLinear):
    """The reference: weights are unpacked for each product."""

    kind, path, held = "ternary", "unpack and multiply in float32", ("codes", "scales")

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        super().__init__(shape, target, device)
        self.codes = torch.empty(shape.out_features // 4, shape.in_features, dtype=torch.uint8, device=device)
        self.scales = torch.empty(shape.out_features, 1, device=device)
        self._modules: list[int] = []

    def fill(self, parts: Sequence[TernaryPart]) -> None:
        self._modules = [len(part.codes) for part in parts]
        self.codes.copy_(torch.cat([part.codes for part in parts]))
        sizes = torch.tensor([part.out_features for part in parts])
        self.scales.copy_(torch.tensor([1 / part.divisor for part in parts]).repeat_interleave(sizes)[:, None])

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        modules = self.codes.split(self._modules)
        rows = [module >> 2 * quarter & 3 for module in modules for quarter in range(4)]
        return ((torch.cat(rows).float() - 1) * self.scales).to(dtype)

    def forward_float32(self, x: Tensor) -> Tensor:
        # One row at a time gives a row the same bits whatever the others are.
        weight = self.dequantised(torch.float32).t()
        out = torch.stack([row @ weight for row in x.float()])
        return out if self.bias is None else out + self.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_float32(x).to(x.dtype)
