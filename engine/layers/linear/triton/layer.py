"""What the layers over Triton kernels share: a product for few rows, dequantise and multiply for many."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.layers.linear.base import LinearShape, PackedLinear, Target
from engine.layers.linear.blocks import scratch
from engine.layers.linear.tiled import tiled_matmul
from engine.layers.linear.triton.runtime import FIXED, MANY_ROWS, PATH, Tile, aligned, tile

BLOCK_WEIGHTS = 1 << 24
"""Weights dequantised at a time, 32 MB in 16 bits: within what memory/estimate.py counts for scratch."""
ROWS = 128
"""Output features dequantised at a time are a multiple of it, as products like them."""


class TritonLinear(PackedLinear):
    """A packed layer on a GPU. A kind gives two launches and what its tensors are called in ``held``."""

    path = PATH

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        super().__init__(shape, target, device)
        self.order = shape.new_order(device)

    @abstractmethod
    def launch_multiply(self, x: Tensor, out: Tensor, cut: Tile) -> None:
        """``out [rows, N]`` in any floating dtype from ``x [rows, K]``, contiguous, in the packed order; with bias."""

    @abstractmethod
    def launch_dequantise(self, start: int, stop: int, out: Tensor) -> None:
        """``W [stop - start, K]`` of some output features in the packed order; float32 results are exact."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        if rows <= MANY_ROWS or self.numerics.batch_invariant:
            return self._product(x, x.dtype, FIXED if self.numerics.batch_invariant else tile(rows))
        x = self._ordered(x)
        out = x.new_empty(rows, self.out_features)
        for start, block in self._blocks(x.dtype):
            out[:, start : start + block.shape[0]] = F.linear(x, block)
        return out if self.bias is None else out.add_(self.bias)

    def forward_float32(self, x: Tensor) -> Tensor:
        if x.dtype == self.dtype:
            return self._product(x, torch.float32, FIXED)
        blocks = ((start, block.t()) for start, block in self._blocks(torch.float32))
        out = tiled_matmul(self._ordered(x), blocks, self.out_features)
        return out if self.bias is None else out.add_(self.bias)

    def _product(self, x: Tensor, dtype: torch.dtype, cut: Tile) -> Tensor:
        out = torch.empty(x.shape[0], self.out_features, dtype=dtype, device=x.device)
        if x.shape[0]:
            self.launch_multiply(aligned(self._ordered(x)), out, cut)
        return out

    def _ordered(self, x: Tensor) -> Tensor:
        return x.contiguous() if self.order is None else x.index_select(1, self.order)

    def _blocks(self, dtype: torch.dtype) -> Iterator[tuple[int, Tensor]]:
        """W in blocks ``(first output feature, [n, K])`` in the packed order, each valid until the next."""
        step = max(1, BLOCK_WEIGHTS // self.in_features // ROWS) * ROWS
        for start in range(0, self.out_features, step):
            stop = min(start + step, self.out_features)
            block = scratch.take("triton", (stop - start, self.in_features), dtype, self.device)
            self.launch_dequantise(start, stop, block)
            yield start, block

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        weight = torch.empty(self.out_features, self.in_features, dtype=dtype, device=self.device)
        back = None if self.order is None else self.order.argsort()
        for start, block in self._blocks(torch.float32):
            weight[start : start + block.shape[0]] = block if back is None else block[:, back]
        return weight
