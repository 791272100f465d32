"""4-bit products in Kvasir's native code (engine/native/int4.c), on a CPU.

The weights are multiplied as they are, never rounded to a narrower type; activations keep their bfloat16 or float32;
sums are float32. Rows do not know each other, so the path is batch-invariant as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.layers.linear.affine import PER_WORD, AffineWeights, chunks
from engine.layers.linear.base import Linear
from engine.layers.linear.lanes import BLOCK, put
from engine.native.library import Int4Weights, Library, declines, find


def native_declines(
    in_features: int, group: int, scales: torch.dtype, dtype: torch.dtype, device: torch.device
) -> str | None:
    """Why the native code does not serve a layer; None when it does."""
    reason = declines(dtype, device)
    if reason is not None:
        return reason
    if scales not in (torch.float16, torch.bfloat16):
        return f"the scales are {str(scales).removeprefix('torch.')}, it reads 16-bit ones"
    if group % PER_WORD or in_features % group:
        return f"it has no groups of {group} over {in_features} input features"
    return None


class NativeInt4Linear(Linear):
    """``codes [N / 64, K / 8, 64]`` int32, ``scales [N / 64, K / group, 64]`` 16-bit, ``zeros`` uint8 alike.

    N is rounded up to whole blocks. ``zeros`` is dropped where every zero-point is 8.
    """

    kind = "int4"
    path = "native 4-bit matmul on CPU"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        group: int,
        scales: torch.dtype,
        device: torch.device,
        symmetric: bool = False,
    ) -> None:
        """A layer whose tensors are allocated but not filled (on device "meta": to plan with).

        ``symmetric`` leaves the zero-points away from the start; else :meth:`fill` does where it finds them all 8.
        """
        self.in_features, self.out_features, self.group = in_features, out_features, group
        self.declined = []
        self.bias: Tensor | None = None
        self.order: Tensor | None = None
        blocks = -(-out_features // BLOCK)
        self.codes = torch.empty(blocks, in_features // PER_WORD, BLOCK, dtype=torch.int32, device=device)
        self.scales = torch.zeros(blocks, in_features // group, BLOCK, dtype=scales, device=device)
        self.zeros: Tensor | None = None
        if not symmetric:
            self.zeros = torch.full(self.scales.shape, 8, dtype=torch.uint8, device=device)

    def fill(self, parts: Sequence[AffineWeights]) -> None:
        """Pack the parts, some output features at a time."""
        assert self.zeros is not None
        library, reason = find()
        assert library is not None, reason
        self._library: Library = library
        library.prefer_huge_pages(self.codes)
        self.codes[-1].zero_()
        self.order = None if parts[0].order is None else parts[0].order.to(torch.int32)
        for start, (words, scales, zeros) in chunks(parts):
            put(words if self.order is None else library.reordered(words, self.order, 4), self.codes, start)
            put(scales, self.scales, start)
            put(zeros, self.zeros, start)
        if bool((self.zeros == 8).all()):
            self.zeros = None
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
        x = x.contiguous() if self.order is None else x.index_select(1, self.order)
        out = self._library.int4_matmul(self._weights, x)
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

    def storage_size(self) -> int:
        held = (self.codes, self.scales, self.zeros, self.bias, self.order)
        return sum(tensor.numel() * tensor.element_size() for tensor in held if tensor is not None)
