"""Linear layers and the token table over ggml's blocks, held byte for byte as in a GGUF file.

Paths here: Kvasir's native code on a CPU, which multiplies the codes as they are and never rounds a weight; and, always
possible, dequantising some output features at a time, in float32 as ggml does it and then rounded once to the model's
dtype. Q4_0 is repacked, without loss, into the group-affine int4 form and gets the paths of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.layers.linear.affine import AffineColumns
from engine.layers.linear.base import LinearShape, Target
from engine.layers.linear.blocks import scratch
from engine.layers.linear.blockwise import BlockwiseLinear
from engine.layers.linear.ggml_blocks import BLOCKS, Q4_0, dequantise
from engine.layers.numerics import Numerics
from engine.native.library import Ggml, Library, declines, loaded

PATH = "native block matmul on CPU"
BLOCK_WEIGHTS = 1 << 21
"""Weights dequantised at a time on a CPU: 8 MB of float32, which stays in a last-level cache."""
BLOCK_WEIGHTS_GPU = 1 << 24
FEW_ROWS = 16
"""Up to this many rows the native product is faster in bfloat16. Milliseconds of one AVX512-BF16 core, Q4_K,
2048 x 8192, at 1 / 4 / 8 / 16 / 32 rows: the product 0.4 / 1.0 / 2.0 / 4.1 / 7.8; rounding the weights to bfloat16 and
multiplying 3.4 / 3.7 / 3.8 / 4.7 / 6.8; dequantising by torch's operations and multiplying 40 for one row."""
GROUP = BLOCKS[Q4_0].weights


class GgmlWeights(NamedTuple):
    """A matrix ``[N, in_features]`` as a GGUF file holds it: ``data`` uint8 [N, row_bytes] of blocks of ``type``."""

    type: int
    data: Tensor
    in_features: int


def shape(type: int, in_features: int, out_features: int) -> LinearShape:
    """The layer's of a matrix of blocks."""
    if type == Q4_0:
        return LinearShape("int4", in_features, out_features, group=GROUP, scales=torch.float16, symmetric=True)
    return LinearShape("ggml", in_features, out_features, block_type=type)


def native_declines(shape: LinearShape, target: Target) -> str | None:
    """Why Kvasir's native code does not serve a layer on a CPU; None when it does."""
    return declines(target.dtype, target.device)


def put(parts: Sequence[GgmlWeights], data: Tensor) -> None:
    """Copy the rows of parts, one after another, into ``data [N, row_bytes]``."""
    for part, rows in zip(parts, data.split([len(part.data) for part in parts]), strict=True):
        rows.copy_(part.data)


def write_dense(part: GgmlWeights, out: Tensor) -> None:
    """Write the ``W [N, K]`` that a matrix stands for into ``out``, exact but for the rounding to its dtype."""
    shape = LinearShape("ggml", part.in_features, len(part.data), block_type=part.type)
    layer = GgmlLinear(shape, Target(torch.float32, out.device, Numerics()), torch.device("meta"))
    layer.hold(part.data.to(out.device))
    layer.write(out)


class AffineQ4:
    """A Q4_0 matrix as :class:`engine.layers.linear.affine.AffineWeights`: zero-points of 8, one scale a block."""

    group = GROUP
    order: Tensor | None = None

    def __init__(self, weights: GgmlWeights) -> None:
        self.in_features, self.out_features = weights.in_features, weights.data.shape[0]
        self._blocks = weights.data.view(self.out_features, -1, BLOCKS[Q4_0].bytes)

    def columns(self, start: int, stop: int) -> AffineColumns:
        blocks = self._blocks[start:stop]
        codes = blocks[..., 2:]
        # The low nibbles are features 0 to 15 and the high ones 16 to 31; words have neighbours side by side.
        even, odd = codes[..., ::2], codes[..., 1::2]
        pairs = torch.cat(((even & 15) | (odd << 4), (even >> 4) | (odd & 240)), -1)
        words = pairs.view(torch.int32).view(len(blocks), -1).t().contiguous()
        scales = blocks[..., :2].contiguous().view(torch.float16)[..., 0].t()
        return AffineColumns(words, scales, torch.full(scales.shape, 8, dtype=torch.uint8, device=words.device))


class GgmlLinear(BlockwiseLinear):
    """``data [out_features, row_bytes]`` uint8: rows of blocks, all of one type."""

    as_in_file = True
    held = ("data",)

    def __init__(self, shape: LinearShape, target: Target, device: torch.device, native: bool = False) -> None:
        """``native``: by Kvasir's code, where it does not decline."""
        super().__init__(shape, target, device)
        block = BLOCKS[shape.block_type]
        self.type, self.kind = shape.block_type, block.name
        self._library: Library | None = None
        size = (shape.out_features, block.row_bytes(shape.in_features))
        self.data = torch.empty(size, dtype=torch.uint8, device=device)
        if native:
            self.path = PATH
            if device.type == "cpu":
                loaded().prefer_huge_pages(self.data)

    def fill(self, parts: Sequence[GgmlWeights]) -> None:
        put(parts, self.data)
        self.hold(self.data)

    def hold(self, data: Tensor) -> None:
        """Take over ``data``, contiguous, which is kept and not copied."""
        self.data, self.device = data, data.device
        self.block_weights = BLOCK_WEIGHTS if data.device.type == "cpu" else BLOCK_WEIGHTS_GPU
        if self.path == PATH and data.device.type == "cpu":
            self._library, self.few_rows = loaded(), FEW_ROWS
            self._weights = Ggml(data.data_ptr(), self.in_features, self.out_features, self.type, data.shape[1])
            if self.dtype == torch.bfloat16:
                self.block_weights = 2 * BLOCK_WEIGHTS

    def forward_float32(self, x: Tensor) -> Tensor:
        if self._library is None:
            return super().forward_float32(x)
        out = self._library.matmul(self._weights, (x if x.dtype == self.dtype else x.float()).contiguous())
        return out if self.bias is None else out.add_(self.bias)

    def rows(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        shape = (stop - start, self.in_features)
        if self._library is None or dtype != torch.bfloat16:
            return dequantise(self.type, self.data[start:stop], scratch.take("ggml", shape, torch.float32, self.device))
        rounded = scratch.take("ggml", shape, dtype, self.device)
        self._library.ggml_round(self._weights, start, stop, rounded)
        return rounded


class GgmlEmbedding:
    """The token table (a TokenTable) as a GGUF file holds it; only rows that are looked up are dequantised."""

    def __init__(self, weights: GgmlWeights, dtype: torch.dtype, device: torch.device) -> None:
        """``weights.data [vocab_size, row_bytes]`` is copied to ``device``; ``dtype`` is the model's."""
        self.data = weights.data.to(device, copy=True)
        self.type, self.in_features, self.dtype = weights.type, weights.in_features, dtype

    def forward(self, tokens: Tensor) -> Tensor:
        out = torch.empty(len(tokens), self.in_features, dtype=self.dtype, device=self.data.device)
        step = max(1, BLOCK_WEIGHTS // self.in_features)
        for start in range(0, len(tokens), step):
            rows = self.data.index_select(0, tokens[start : start + step])
            out[start : start + step] = dequantise(self.type, rows)
        return out

    def storage_size(self) -> int:
        return self.data.numel()
