"""The group-affine int4 layer without native code: few rows by torch's operator, many by dequantise-and-multiply.

Fast paths in order of preference (see :func:`build`): Kvasir's Triton kernels on a GPU, torch's int4 matmul on CUDA,
Kvasir's native code on a CPU, torch's int4 matmul on a CPU (bfloat16 only), and, always possible, dequantising block by
block. In float32 the weights are exactly those of the definition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.layers.linear.affine import AffineWeights, chunks
from engine.layers.linear.base import Declined, Linear
from engine.layers.linear.blocks import (
    BLOCK,
    IDENTITY,
    natural,
    operator_columns,
    pack_words,
    scratch,
    stored,
    unpack_blocks,
)
from engine.layers.linear.int4_cuda import CudaInt4Linear, cuda_declines
from engine.layers.linear.int4_native import NativeInt4Linear, native_declines
from engine.layers.linear.tiled import tiled_matmul
from engine.layers.linear.triton.int4 import TritonInt4Linear, triton_declines
from engine.layers.numerics import Numerics

OPERATOR_GROUPS = (32, 64, 128, 256)
FEW_ROWS = 60
"""Up to so many rows torch's operator is the faster path. Milliseconds of one AVX512-BF16 core, 2048 x 8192,
groups of 32, at 1 / 4 / 16 / 32 / 48 / 64 / 512 rows: the operator 1.0 / 1.6 / 6.4 / 12.7 / 19.1 / 25.4 / 202;
dequantise and multiply 14.4 / 15.0 / 17.4 / 19.7 / 22.4 / 24.9 / 106, of which 10 are dequantisation."""
BLOCK_WEIGHTS = 1 << 23
"""Weights dequantised at a time in the product over many rows: 16 MB in bfloat16, so it stays in a last-level cache."""


def build(
    parts: Sequence[AffineWeights],
    bias: Tensor | None,
    dtype: torch.dtype,
    device: torch.device,
    numerics: Numerics,
    native: bool = True,
) -> Linear:
    """One layer of modules fused along their output features; they agree in input features, group and order.

    ``native=False`` leaves Kvasir's own kernels out of the choice.
    """
    first = parts[0]
    declined = []
    if device.type == "cuda":
        if native:
            reason = triton_declines(parts, dtype, device)
            if reason is None:
                return TritonInt4Linear(parts, bias, dtype, device, numerics)
            declined.append(Declined(TritonInt4Linear.path, reason))
        reason = cuda_declines(parts, dtype, device)
        if reason is None:
            on_cuda = CudaInt4Linear(parts, bias, device, numerics)
            on_cuda.declined = declined
            return on_cuda
        declined.append(Declined(CudaInt4Linear.path, reason))
    layer, refused = empty(
        first.in_features,
        sum(part.out_features for part in parts),
        first.group,
        _scales_dtype(parts),
        dtype,
        device,
        numerics,
        native,
    )
    layer.declined = declined + refused
    layer.bias = bias
    layer.fill(parts)
    return layer


def empty(
    in_features: int,
    out_features: int,
    group: int,
    scales: torch.dtype,
    dtype: torch.dtype,
    device: torch.device,
    numerics: Numerics,
    native: bool = True,
    symmetric: bool = False,
) -> tuple[Int4Linear | NativeInt4Linear, list[Declined]]:
    """The layer that serves these sizes away from CUDA, not yet filled (on device "meta": to plan with).

    ``symmetric``: every zero-point is known to be 8.
    """
    declined = []
    if native:
        reason = native_declines(in_features, group, scales, dtype, device)
        if reason is None:
            return NativeInt4Linear(in_features, out_features, group, scales, device, symmetric), []
        declined.append(Declined(NativeInt4Linear.path, reason))
    reason = operator_declines(in_features, group, dtype, device)
    if reason is not None:
        declined.append(Declined("torch int4 matmul on CPU", reason))
    layer = Int4Linear.empty(in_features, out_features, group, dtype, device, numerics, scales)
    return layer, declined if device.type == "cpu" else []


def _scales_dtype(parts: Sequence[AffineWeights]) -> torch.dtype:
    """The one dtype of all scales; float32 where they differ."""
    found = {part.columns(0, 1).scales.dtype for part in parts}
    return found.pop() if len(found) == 1 else torch.float32


def write_dense(part: AffineWeights, out: Tensor) -> None:
    """Write the ``W [N, K]`` that one module stands for into ``out``, exact but for the rounding to its dtype."""
    device = out.device
    layer = Int4Linear.empty(part.in_features, part.out_features, part.group, torch.float32, device, Numerics())
    layer.fill([part])
    layer.write(out)


def operator_declines(in_features: int, group: int, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why torch's CPU operator does not serve a layer; None when it does."""
    if device.type not in ("cpu", "meta"):
        return "the model is not on a CPU"
    if dtype != torch.bfloat16:
        return f"it needs bfloat16 activations and the model runs in {str(dtype).removeprefix('torch.')}"
    if group not in OPERATOR_GROUPS or in_features % group:
        return f"it has no groups of {group} over {in_features} input features"
    if operator_columns() is None:
        return "its packed layout on this processor is not known"
    return None


class Int4Linear(Linear):
    """``packed [blocks, K, 32]`` uint8 beside scales and zero-points.

    For torch's operator these are ``scale_zero [K / group, 64 blocks, 2]`` bfloat16, meaning
    ``(code - 8) * scale + zero``; otherwise ``scales`` (as in the file) and ``zeros`` (uint8), of two dimensions.
    """

    kind = "int4"

    packed: Tensor
    scale_zero: Tensor | None = None
    scales: Tensor | None = None
    zeros: Tensor | None = None
    bias: Tensor | None = None
    order: Tensor | None = None

    @classmethod
    def empty(
        cls,
        in_features: int,
        out_features: int,
        group: int,
        dtype: torch.dtype,
        device: torch.device,
        numerics: Numerics,
        scales: torch.dtype = torch.float16,
    ) -> Int4Linear:
        """A layer whose tensors are allocated but not filled (on device "meta": to plan with)."""
        layer = cls()
        layer.in_features, layer.out_features = in_features, out_features
        layer.group, layer.dtype, layer.numerics = group, dtype, numerics
        layer.declined, layer.symmetric = [], True
        operator = operator_declines(in_features, group, dtype, device) is None
        layer.path = "torch int4 matmul on CPU" if operator else "dequantise and multiply"
        layer.columns = (operator_columns() or IDENTITY) if operator else IDENTITY
        blocks, groups = -(-out_features // BLOCK), in_features // group
        layer.packed = torch.zeros(blocks, in_features, BLOCK // 2, dtype=torch.uint8, device=device)
        if operator:
            layer.scale_zero = torch.zeros(groups, blocks * BLOCK, 2, dtype=torch.bfloat16, device=device)
        else:
            layer.scales = torch.zeros(groups, blocks * BLOCK, dtype=scales, device=device)
            layer.zeros = torch.zeros(groups, blocks * BLOCK, dtype=torch.uint8, device=device)
        return layer

    def __init__(self) -> None:
        self.group = 0
        self.dtype = torch.float32
        self.symmetric = True
        self.columns = IDENTITY
        self.numerics = Numerics()

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
            self.symmetric &= bool((zeros == 8).all())
            if self.scale_zero is not None:
                self.scale_zero[:, start:stop, 0] = scales
                self.scale_zero[:, start:stop, 1] = (8 - zeros.float()) * scales.float()
            elif self.scales is not None and self.zeros is not None:
                if scales.dtype != self.scales.dtype:
                    self.scales = self.scales.to(torch.float32)
                self.scales[:, start:stop] = scales
                self.zeros[:, start:stop] = zeros

    def forward(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        invariant = self.numerics.batch_invariant
        # The operator treats every row alike and by itself, so alone it is batch-invariant.
        if self.scale_zero is not None and (rows <= FEW_ROWS or invariant):
            out = torch._weight_int4pack_mm_for_cpu(
                self._ordered(x), self.packed.view(-1, self.in_features // 2), self.group, self.scale_zero
            )[:, : self.out_features]
        elif invariant:
            return self.forward_float32(x).to(x.dtype)
        else:
            out = self._product(self._ordered(x))
        return out if self.bias is None else out + self.bias

    def forward_float32(self, x: Tensor) -> Tensor:
        out = tiled_matmul(self._ordered(x), self._natural_blocks(), self.out_features)
        return out if self.bias is None else out.add_(self.bias)

    def _ordered(self, x: Tensor) -> Tensor:
        return x.contiguous() if self.order is None else x.index_select(1, self.order)

    def _product(self, x: Tensor) -> Tensor:
        out = x.new_empty(x.shape[0], self.out_features)
        for start, block in self._blocks(x.dtype, BLOCK_WEIGHTS):
            part = natural(x @ block, self.columns)[:, : self.out_features - start]
            if part.shape[1] == self.out_features:
                return part
            out[:, start : start + part.shape[1]] = part
        return out

    def _blocks(self, dtype: torch.dtype, weights: int) -> Iterator[tuple[int, Tensor]]:
        """``W^T`` in blocks ``(first output feature, [K, n])``, each valid until the next.

        Rows are in the packed order and columns in stored order (see blocks.py).
        """
        step = max(1, weights // (self.in_features * BLOCK))
        for first in range(0, self.packed.shape[0], step):
            yield first * BLOCK, self._dequantise(first, min(first + step, self.packed.shape[0]), dtype)

    def _natural_blocks(self) -> Iterator[tuple[int, Tensor]]:
        """As :meth:`_blocks` in float32, columns in the order of the output features and none of them padding."""
        for start, block in self._blocks(torch.float32, BLOCK_WEIGHTS // 4):
            yield start, natural(block, self.columns)[:, : self.out_features - start]

    def _dequantise(self, first: int, stop: int, dtype: torch.dtype) -> Tensor:
        """Blocks ``[first, stop)`` as ``[K, 64 (stop - first)]`` in a buffer that the next call overwrites."""
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

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        weight = torch.empty(self.out_features, self.in_features, dtype=dtype, device=self.packed.device)
        self.write(weight)
        return weight

    def write(self, out: Tensor) -> None:
        """Write ``W [out_features, in_features]`` into ``out``; a float32 layer rounds once, to its dtype."""
        back = None if self.order is None else self.order.argsort()
        for start, block in self._natural_blocks():
            # Two steps, since torch transposes quickly only where it does not convert.
            rounded = block.to(out.dtype)
            out[start : start + block.shape[1]] = (rounded if back is None else rounded.index_select(0, back)).t()

    def storage_size(self) -> int:
        held = (self.packed, self.scale_zero, self.scales, self.zeros, self.bias, self.order)
        return sum(tensor.numel() * tensor.element_size() for tensor in held if tensor is not None)
