"""The group-affine int4 layer without native code: few rows by torch's operator, many by dequantise-and-multiply.

Both are paths of the kind "int4" in choose.py: torch's int4 matmul on a CPU (bfloat16 only), and, always possible,
dequantising block by block. In float32 the weights are exactly those of the definition.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.compute.layers.linear.affine import AffineWeights, chunks
from engine.compute.layers.linear.base import LinearShape, Target
from engine.compute.layers.linear.blocks import (
    BLOCK,
    IDENTITY,
    natural,
    operator_columns,
    pack_words,
    scratch,
    stored,
    unpack_blocks,
)
from engine.compute.layers.linear.blockwise import BlockwiseLinear

OPERATOR = "torch int4 matmul on CPU"
OPERATOR_GROUPS = (32, 64, 128, 256)
FEW_ROWS = 60
"""Up to this many rows torch's operator is faster. Milliseconds of one AVX512-BF16 core, 2048 x 8192,
groups of 32, at 1 / 4 / 16 / 32 / 48 / 64 / 512 rows: the operator 1.0 / 1.6 / 6.4 / 12.7 / 19.1 / 25.4 / 202;
dequantise and multiply 14.4 / 15.0 / 17.4 / 19.7 / 22.4 / 24.9 / 106, of which 10 are dequantisation."""


def operator_declines(shape: LinearShape, target: Target) -> str | None:
    """Reason torch's CPU operator does not serve a layer; None when it does."""
    if target.dtype != torch.bfloat16:
        return f"it needs bfloat16 activations and the model runs in {str(target.dtype).removeprefix('torch.')}"
    if shape.group not in OPERATOR_GROUPS or shape.in_features % shape.group:
        return f"it has no groups of {shape.group} over {shape.in_features} input features"
    if operator_columns() is None:
        return "its packed layout on this processor is not known"
    return None


class Int4Linear(BlockwiseLinear):
    """``packed [blocks, K, 32]`` uint8, with scales and zero-points.

    For torch's operator these are ``scale_zero [K / group, 64 blocks, 2]`` bfloat16, meaning
    ``(code - 8) * scale + zero``; otherwise ``scales`` (as in the file) and ``zeros`` (uint8), of two dimensions.
    """

    kind = "int4"
    held = ("packed", "scale_zero", "scales", "zeros", "order")
    granule = BLOCK
    scale_zero: Tensor | None = None
    scales: Tensor | None = None
    zeros: Tensor | None = None

    def __init__(self, shape: LinearShape, target: Target, device: torch.device, operator: bool = False) -> None:
        """``operator``: by torch's, where it does not decline."""
        super().__init__(shape, target, device)
        self.group, self.symmetric, self.order = shape.group, shape.symmetric, shape.new_order(device)
        if operator:
            self.path = OPERATOR
        self.columns = (operator_columns() or IDENTITY) if operator else IDENTITY
        width = -(-shape.out_features // BLOCK) * BLOCK
        self.packed = torch.zeros(width // BLOCK, shape.in_features, BLOCK // 2, dtype=torch.uint8, device=device)
        if operator:
            self.scale_zero = torch.zeros(shape.groups, width, 2, dtype=torch.bfloat16, device=device)
        else:
            self.scales = torch.zeros(shape.groups, width, dtype=shape.scales, device=device)
            self.zeros = torch.zeros(shape.groups, width, dtype=torch.uint8, device=device)

    def fill(self, parts: Sequence[AffineWeights]) -> None:
        """Pack the parts, some output features at a time, and take over their order of input features."""
        order = parts[0].order
        self.order = None if order is None else order.to(self.packed.device, torch.int32)
        for start, (words, scales, zeros) in chunks(parts):
            count = words.shape[1]
            if count % BLOCK:
                words = F.pad(words, (0, -count % BLOCK))
            first, stop = start // BLOCK, start + count
            packed = pack_words(words, self.columns)
            self.packed[first : first + packed.shape[0]] = packed if order is None else packed.index_select(1, order)
            if self.scale_zero is not None:
                self.scale_zero[:, start:stop, 0] = scales
                self.scale_zero[:, start:stop, 1] = (8 - zeros.float()) * scales.float()
            elif self.scales is not None and self.zeros is not None:
                self.scales[:, start:stop] = scales
                self.zeros[:, start:stop] = zeros

    def forward(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        invariant = self.numerics.batch_invariant
        # The operator treats every row alike and by itself, so alone it is batch-invariant.
        if self.scale_zero is not None and (rows <= FEW_ROWS or invariant):
            out = torch._weight_int4pack_mm_for_cpu(
                self.ordered(x), self.packed.view(-1, self.in_features // 2), self.group, self.scale_zero
            )[:, : self.out_features]
        elif invariant:
            return self.forward_float32(x).to(x.dtype)
        else:
            out = self._product(self.ordered(x))
        return out if self.bias is None else out + self.bias

    def _product(self, x: Tensor) -> Tensor:
        """By dequantised weights whose columns stay in stored order (see blocks.py): only results are moved."""
        out = x.new_empty(x.shape[0], self.out_features)
        # For many rows 16 MB in bfloat16, so it stays in a last-level cache; for few, where dequantising is most of the
        # work, 4 MB in float32: milliseconds of one core, 2048 x 8192, groups of 128, one row: 10 against 25.
        weights = 4 * self.block_weights if x.shape[0] > FEW_ROWS else self.block_weights // 2
        step = max(1, weights // (self.in_features * BLOCK))
        for first in range(0, self.packed.shape[0], step):
            start = first * BLOCK
            block = self._dequantise(first, min(first + step, self.packed.shape[0]), x.dtype)
            part = natural(x @ block, self.columns)[:, : self.out_features - start]
            if part.shape[1] == self.out_features:
                return part
            out[:, start : start + part.shape[1]] = part
        return out

    def rows(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        block = self._dequantise(start // BLOCK, -(-stop // BLOCK), dtype)
        return natural(block, self.columns)[:, : stop - start].t()

    def _dequantise(self, first: int, stop: int, dtype: torch.dtype) -> Tensor:
        """Blocks ``[first, stop)`` as ``W^T [K, 64 (stop - first)]`` in a buffer that the next call overwrites.

        Rows are in the packed order and columns in stored order (see blocks.py).
        """
        width = (stop - first) * BLOCK
        features = slice(first * BLOCK, stop * BLOCK)
        out = scratch.take("block", (self.in_features, width), dtype, self.packed.device)
        grouped = out.view(-1, self.group, width)

        def per_group(values: Tensor) -> Tensor:
            return stored(values[:, features].to(dtype), self.columns)[:, None]

        if self.scale_zero is not None:
            unpack_blocks(self.packed[first:stop], 8, out)
            grouped.mul_(per_group(self.scale_zero[..., 0]))
            if not self.symmetric:
                grouped.add_(per_group(self.scale_zero[..., 1]))
        else:
            assert self.scales is not None
            assert self.zeros is not None
            unpack_blocks(self.packed[first:stop], 8 if self.symmetric else 0, out)
            if not self.symmetric:
                grouped.sub_(per_group(self.zeros))
            grouped.mul_(per_group(self.scales))
        return out
