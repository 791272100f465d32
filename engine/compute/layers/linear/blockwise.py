"""Base of most kinds, where no kernel is faster: dequantise some output features into a buffer, multiply, repeat."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from engine.compute.layers.linear.base import PackedLinear
from engine.compute.layers.linear.blocks import scratch
from engine.compute.layers.linear.tiled import tiled_matmul


class BlockwiseLinear(PackedLinear):
    """A layer that dequantises some of its output features at a time: a kind gives :meth:`rows`."""

    path = "dequantise and multiply"
    block_weights = 1 << 21
    """Weights dequantised at a time: 8 MB in float32."""
    granule = 1
    """The output features dequantised at a time are a multiple of it."""
    few_rows = -1
    """Up to this many rows :meth:`forward` rounds what :meth:`forward_float32` gives, which is faster."""

    @abstractmethod
    def rows(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        """``W [stop - start, K]`` of output features ``[start, stop)`` in the packed order, valid until the next call.

        In ``dtype``, or in float32 for the caller to round. Float32 weights are exactly those of the format's
        definition.
        """

    def weight_blocks(self, dtype: torch.dtype) -> Iterator[tuple[int, Tensor]]:
        """``W^T``, in the packed order, as ``(first output feature, [K, n])``, each valid until the next."""
        step = max(1, self.block_weights // (self.in_features * self.granule)) * self.granule
        for start in range(0, self.out_features, step):
            yield start, self.rows(start, min(start + step, self.out_features), dtype).to(dtype).t()

    def forward(self, x: Tensor) -> Tensor:
        if self.numerics.batch_invariant or x.shape[0] <= self.few_rows:
            return self.forward_float32(x).to(x.dtype)
        return self.by_blocks(x)

    def by_blocks(self, x: Tensor) -> Tensor:
        """:meth:`forward` by torch's products with dequantised weights, which are not batch-invariant."""
        x = self.ordered(x)
        out = x.new_empty(x.shape[0], self.out_features)
        for start, block in self.weight_blocks(x.dtype):
            out[:, start : start + block.shape[1]] = x @ block
        return out if self.bias is None else out.add_(self.bias)

    def forward_float32(self, x: Tensor) -> Tensor:
        out = tiled_matmul(self.ordered(x), self.weight_blocks(torch.float32), self.out_features)
        return out if self.bias is None else out.add_(self.bias)

    def buffer(self, name: str, *shape: int) -> Tensor:
        """A float32 buffer that the next call for the same name overwrites."""
        return scratch.take(f"blockwise {name}", shape, torch.float32, self.device)

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        weight = torch.empty(self.out_features, self.in_features, dtype=dtype, device=self.device)
        self.write(weight)
        return weight

    def write(self, out: Tensor) -> None:
        """Write ``W [out_features, in_features]`` into ``out``, rounded once to its dtype."""
        back = None if self.order is None else self.order.argsort()
        for start, block in self.weight_blocks(torch.float32):
            # Two steps, since torch transposes quickly only where it does not convert.
            rounded = block if block.t().is_contiguous() else block.to(out.dtype)
            out[start : start + block.shape[1]] = (rounded if back is None else rounded.index_select(0, back)).t()


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
