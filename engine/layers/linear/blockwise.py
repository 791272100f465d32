"""What the kinds without a fast kernel share: dequantise some output features into a buffer, multiply, go on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.layers.linear.base import PackedLinear
from engine.layers.linear.blocks import scratch
from engine.layers.linear.tiled import tiled_matmul

BLOCK_WEIGHTS = 1 << 21
"""Weights dequantised at a time: 8 MB in float32."""


class BlockwiseLinear(PackedLinear):
    """A layer whose weights are packed as in the file. A kind gives :meth:`rows`; in float32 they are exactly those of
    its format's definition, and they are rounded once where the model runs in less."""

    path = "dequantise and multiply"

    @abstractmethod
    def rows(self, start: int, stop: int) -> Tensor:
        """``W [stop - start, K]`` float32 of output features ``[start, stop)``, valid until the next call."""

    def forward(self, x: Tensor) -> Tensor:
        if self.numerics.batch_invariant:
            return self.forward_float32(x).to(x.dtype)
        out = x.new_empty(x.shape[0], self.out_features)
        for start, block in self._blocks():
            out[:, start : start + block.shape[0]] = F.linear(x, block.to(x.dtype))
        return out if self.bias is None else out.add_(self.bias)

    def forward_float32(self, x: Tensor) -> Tensor:
        out = tiled_matmul(x, ((start, block.t()) for start, block in self._blocks()), self.out_features)
        return out if self.bias is None else out.add_(self.bias)

    def _blocks(self) -> Iterator[tuple[int, Tensor]]:
        step = max(1, BLOCK_WEIGHTS // self.in_features)
        for start in range(0, self.out_features, step):
            yield start, self.rows(start, min(start + step, self.out_features))

    def buffer(self, name: str, *shape: int) -> Tensor:
        """A float32 buffer that the next call for the same name overwrites."""
        return scratch.take(f"blockwise {name}", shape, torch.float32, self.device)

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        weight = torch.empty(self.out_features, self.in_features, dtype=dtype, device=self.device)
        self.write(weight)
        return weight

    def write(self, out: Tensor) -> None:
        """Write ``W [out_features, in_features]`` into ``out``, rounded once to its dtype."""
        for start, block in self._blocks():
            # Two steps, since torch transposes quickly only where it does not convert.
            out[start : start + block.shape[0]] = block if block.is_contiguous() else block.to(out.dtype)


def by_group(
    apply: Callable[[Tensor, Tensor], Tensor],
    weights: Tensor,
    values: Tensor,
    dim: int,
    group_size: int,
    group_of: Tensor | None,
) -> None:
    """``apply(weights, values)`` (``Tensor.mul_``) with each input feature's own group of ``values`` along ``dim``.

    ``group_of`` int32 [K] is None where feature k lies in group ``k // group_size``; the last group may be shorter.
    """
    features = weights.shape[dim]
    if group_of is None and features % group_size == 0:
        apply(weights.unflatten(dim, (-1, group_size)), values.unsqueeze(dim + 1))
        return
    if group_of is None:
        group_of = torch.arange(features, dtype=torch.int32, device=weights.device) // group_size
    apply(weights, values.index_select(dim, group_of))
