"""Torch's own int4 matrix multiplication on a GPU: on CUDA it reads a layout of its tensor-core tiles.

On Metal the same two operators have a layout of their own and take every dtype, scales and zero-points in the same.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.compute.layers.linear.affine import AffineWeights, chunks, unpack_words
from engine.compute.layers.linear.base import LinearShape, Target
from engine.compute.layers.linear.blockwise import BlockwiseLinear

GROUPS = (32, 64, 128, 256)
K_TILES = (8, 4, 2)
"""The operator's ``inner_k_tiles``, the fastest first: that many tiles of 16 input features lie together in memory."""
_EYE_ROWS = 256
_FEATURES = 8
"""Output features of one tile of the layout."""
_METAL_FEATURES = 32
"""Output features of one group of Metal's threads, which all take part."""


def cuda_declines(shape: LinearShape, target: Target) -> str | None:
    """Reason the operator does not serve a layer on a GPU; None when it does."""
    if target.dtype != torch.bfloat16:
        return f"it needs bfloat16 activations and the model runs in {str(target.dtype).removeprefix('torch.')}"
    if torch.cuda.get_device_capability(target.device) < (8, 0):
        return "the GPU is older than compute capability 8.0"
    return _shape_declines(shape, target)


def metal_declines(shape: LinearShape, target: Target) -> str | None:
    """Same as :func:`cuda_declines`, on an Apple GPU."""
    if shape.out_features % _METAL_FEATURES:
        return f"{shape.out_features} output features are not a multiple of {_METAL_FEATURES}"
    return _shape_declines(shape, target)


def _shape_declines(shape: LinearShape, target: Target) -> str | None:
    if shape.group not in GROUPS or shape.in_features % shape.group:
        return f"it has no groups of {shape.group} over {shape.in_features} input features"
    tiles = _k_tiles(shape.in_features)
    if tiles is None or shape.out_features % _FEATURES:
        return f"{shape.out_features} x {shape.in_features} is not a multiple of its tiles"
    return _operator_fails(target.device, tiles, target.dtype)


def _k_tiles(in_features: int) -> int | None:
    return next((tiles for tiles in K_TILES if in_features % (16 * tiles) == 0), None)


@functools.cache
def _operator_fails(device: torch.device, tiles: int, dtype: torch.dtype) -> str | None:
    """Multiply a small random matrix once and compare with the definition: packing conventions changed over time."""
    generator = torch.Generator().manual_seed(1)
    codes = torch.randint(0, 16, (64, 256), dtype=torch.uint8, generator=generator)
    scale_zero = torch.rand(2, 64, 2, generator=generator).to(dtype)
    x = torch.randn(3, 256, generator=generator).to(dtype)
    scale, zero = scale_zero.float().repeat_interleave(128, 0).unbind(-1)
    expected = x.float() @ ((codes.t().float() - 8) * scale + zero)
    try:
        packed = _pack(codes.to(device), tiles)
        found = torch._weight_int4pack_mm(x.to(device), packed, 128, scale_zero.to(device)).float().cpu()
    except RuntimeError as error:
        return f"it fails here ({str(error).splitlines()[0]})"
    if (found - expected).abs().max() > 0.02 * expected.abs().max():
        return "its result does not agree with the definition here"
    return None


def _pack(codes: Tensor, tiles: int) -> Tensor:
    """``codes [N, K]`` uint8 -> the operator's layout ``[N / 8, K / (16 tiles), 32, tiles / 2]`` int32."""
    pairs = codes[:, ::2] << 4 | codes[:, 1::2]
    return torch._convert_weight_to_int4pack(pairs.contiguous(), tiles)


class CudaInt4Linear(BlockwiseLinear):
    """The operator serves every number of rows; its layout is the only resident copy.

    ``scale_zero`` is in the model's dtype, which is bfloat16 on CUDA.
    """

    kind = "int4"
    path = "torch int4 matmul on CUDA"
    held = ("packed", "scale_zero", "order")
    block_weights, granule = 1 << 24, _FEATURES

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        super().__init__(shape, target, device)
        tiles = _k_tiles(shape.in_features)
        assert tiles is not None, "see cuda_declines"
        self.group, self.order = shape.group, shape.new_order(device)
        packed = (shape.out_features // _FEATURES, shape.in_features // (16 * tiles), 32, tiles // 2)
        self.packed = torch.empty(packed, dtype=torch.int32, device=device)
        groups = (shape.groups, shape.out_features, 2)
        self.scale_zero = torch.empty(groups, dtype=target.dtype, device=device)

    def fill(self, parts: Sequence[AffineWeights]) -> None:
        order = parts[0].order
        self.order = None if order is None else order.to(self.device, torch.int32)
        codes = torch.empty(self.out_features, self.in_features, dtype=torch.uint8, device=self.device)
        for start, columns in chunks(parts):
            stop = start + columns.words.shape[1]
            codes[start:stop] = unpack_words(columns.words.to(self.device), self.order).t()
            self.scale_zero[:, start:stop, 0] = columns.scales
            self.scale_zero[:, start:stop, 1] = (8 - columns.zeros.float()) * columns.scales.float()
        self.packed.copy_(_pack(codes, 2 * self.packed.shape[3]))

    def forward(self, x: Tensor) -> Tensor:
        if self.numerics.batch_invariant:
            return self.forward_float32(x).to(x.dtype)
        out = torch._weight_int4pack_mm(self.ordered(x), self.packed, self.group, self.scale_zero)
        return out if self.bias is None else out + self.bias

    def rows(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        """The identity times the operator over some output features: every sum has one term that is not zero."""
        packed = self.packed[start // _FEATURES : stop // _FEATURES]
        scale_zero = self.scale_zero[:, start:stop].contiguous()
        weight = torch.empty(self.in_features, stop - start, dtype=scale_zero.dtype, device=packed.device)
        for first in range(0, self.in_features, _EYE_ROWS):
            rows = min(_EYE_ROWS, self.in_features - first)
            eye = torch.zeros(rows, self.in_features, dtype=scale_zero.dtype, device=packed.device)
            eye[:, first : first + rows].fill_diagonal_(1)
            weight[first : first + rows] = torch._weight_int4pack_mm(eye, packed, self.group, scale_zero)
        return weight.t()


class MetalInt4Linear(CudaInt4Linear):
    """The same on an Apple GPU."""

    path = "torch int4 matmul on Metal"
