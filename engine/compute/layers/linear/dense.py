"""Weights as they are: float32, bfloat16 or float16."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.compute.layers.linear.base import Linear
from engine.compute.layers.linear.tiled import tiled_matmul
from engine.compute.layers.numerics import Numerics
from engine.compute.native import results

BLOCK_WEIGHTS = 1 << 21
"""Weights converted to float32 at a time in the batch-invariant mode (8 MB)."""


class Dense(Linear):
    """``weight [out_features, in_features]`` in the model's dtype, ``bias [out_features]`` or None."""

    kind = "dense"
    as_in_file = True

    def __init__(self, weight: Tensor, bias: Tensor | None, numerics: Numerics) -> None:
        self.weight, self.bias, self.numerics = weight, bias, numerics
        self.out_features, self.in_features = weight.shape
        self.path = "torch linear"
        self.declined = []

    def forward(self, x: Tensor) -> Tensor:
        if self.numerics.batch_invariant:
            return self.forward_float32(x).to(x.dtype)
        return F.linear(x, self.weight, self.bias)

    def forward_float32(self, x: Tensor) -> Tensor:
        out = tiled_matmul(x, self._blocks(), self.out_features)
        return out if self.bias is None else out.add_(self.bias)

    def _blocks(self) -> Iterator[tuple[int, Tensor]]:
        rows = max(64, BLOCK_WEIGHTS // self.in_features)
        for start in range(0, self.out_features, rows):
            yield start, self.weight[start : start + rows].float().t()

    def storage_size(self) -> int:
        return self.weight.nbytes + (0 if self.bias is None else self.bias.nbytes)

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        return self.weight.to(dtype, copy=True)


class Concatenated(Linear):
    """Layers that share their input but not their storage (one of q, k, v left unquantised), side by side."""

    kind = "concatenated"

    def __init__(self, parts: list[Linear]) -> None:
        self.parts = parts
        self.in_features = parts[0].in_features
        self.out_features = sum(part.out_features for part in parts)
        self.as_in_file = all(part.as_in_file for part in parts)
        self.path = " | ".join(dict.fromkeys(part.path for part in parts))
        self.declined = list(dict.fromkeys(declined for part in parts for declined in part.declined))

    def forward(self, x: Tensor) -> Tensor:
        made = [part.forward(x) for part in self.parts]
        if made[0].device.type != "cpu":
            return torch.cat(made, -1)
        return torch.cat(made, -1, out=results.empty((len(x), self.out_features), made[0].dtype))

    def forward_float32(self, x: Tensor) -> Tensor:
        return torch.cat([part.forward_float32(x) for part in self.parts], -1)

    def storage_size(self) -> int:
        return sum(part.storage_size() for part in self.parts)

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        return torch.cat([part.dequantised(dtype) for part in self.parts])
