"""4-bit products in Kvasir's native code (engine/native/int4.c), on a CPU.

The weights are multiplied as they are, never rounded to a narrower type; activations keep their bfloat16 or float32;
sums are float32. Rows do not know each other, so the path is batch-invariant as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.layers.linear.affine import PER_WORD, AffineWeights, chunks
from engine.layers.linear.base import LinearShape, PackedLinear, Target
from engine.layers.linear.native.lanes import BLOCK, prepared, put
from engine.native.library import Int4Weights, declines


def native_declines(shape: LinearShape, target: Target) -> str | None:
    """Why the native code does not serve a layer; None when it does."""
    reason = declines(target.dtype, target.device)
    if reason is not None:
        return reason
    if shape.scales not in (torch.float16, torch.bfloat16):
        return f"the scales are {str(shape.scales).removeprefix('torch.')}, it reads 16-bit ones"
    if shape.group % PER_WORD or shape.in_features % shape.group:
        return f"it has no groups of {shape.group} over {shape.in_features} input features"
    return None


class NativeInt4Linear(PackedLinear):
    """``codes [N / 64, K / 8, 64]`` int32, ``scales [N / 64, K / group, 64]`` 16-bit, ``zeros`` uint8 alike.

    N is rounded up to whole blocks. ``zeros`` is None where every zero-point is 8.
    """

    kind = "int4"
    path = "native 4-bit matmul on CPU"
    held = ("codes", "scales", "zeros", "order")

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        super().__init__(shape, target, device)
        self.group, self.order = shape.group, shape.new_order(device)
        blocks = -(-shape.out_features // BLOCK)
        self.codes = torch.empty(blocks, shape.in_features // PER_WORD, BLOCK, dtype=torch.int32, device=device)
        self.scales = torch.zeros(blocks, shape.groups, BLOCK, dtype=shape.scales, device=device)
        self.zeros: Tensor | None = None
        if not shape.symmetric:
            self.zeros = torch.full(self.scales.shape, 8, dtype=torch.uint8, device=device)

    def fill(self, parts: Sequence[AffineWeights]) -> None:
        """Pack the parts, some output features at a time."""
        self._library = library = prepared(self.codes)
        self.order = None if parts[0].order is None else parts[0].order.to(torch.int32)
        for start, (words, scales, zeros) in chunks(parts):
            put(words if self.order is None else library.reordered(words, self.order, 4), self.codes, start)
            put(scales, self.scales, start)
            if self.zeros is not None:
                put(zeros, self.zeros, start)
        self._weights = Int4Weights(
            self.codes.data_ptr(),
            self.scales.data_ptr(),
            None if self.zeros is None else self.zeros.data_ptr(),
            self.in_features,
            self.out_features,
            self.group,
            self.scales.dtype == torch.bfloat16,
        )

    def forward(self, x: Tensor) -> Tensor:
        out = self._library.matmul(self._weights, self.ordered(x))
        return out if self.bias is None else out.add_(self.bias)

    def forward_float32(self, x: Tensor) -> Tensor:
        return self.forward(x.float())

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        weight = torch.empty(self.out_features, self.in_features, dtype=dtype)
        bias, self.bias = self.bias, None
        try:
            for start in range(0, self.in_features, 256):
                stop = min(start + 256, self.in_features)
                rows = torch.zeros(stop - start, self.in_features)
                rows[:, start:stop].fill_diagonal_(1)
                weight[:, start:stop] = self.forward(rows).t()
        finally:
            self.bias = bias
        return weight
