"""Linear layers and the token table over ggml's blocks, held byte for byte as in a GGUF file.

Paths here: Kvasir's native code on a CPU, which multiplies the codes as they are and never rounds a weight; and, always
possible, dequantising some output features at a time, in float32 as ggml does it and then rounded once to the model's
dtype. Q4_0 is repacked, without loss, into the group-affine int4 form and gets the paths of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.layers.linear.affine import AffineColumns
from engine.layers.linear.base import LinearShape, PackedLinear, Target
from engine.layers.linear.blocks import scratch
from engine.layers.linear.ggml_blocks import BLOCKS, Q4_0, dequantise
from engine.layers.linear.native.ggml import PATH, NativeBlocks, prefer_huge_pages
from engine.layers.linear.tiled import tiled_matmul
from engine.native.library import declines

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
    start = 0
    for part in parts:
        stop = start + part.data.shape[0]
        data[start:stop] = part.data
        start = stop


def write_dense(part: GgmlWeights, out: Tensor) -> None:
    """Write the ``W [N, K]`` that a matrix stands for into ``out``, exact but for the rounding to its dtype."""
    for start, block in _blocks(part.type, part.data.to(out.device)):
        out[start : start + block.shape[0]] = block


def _blocks(type: int, data: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The matrix in float32, ``(first output feature, [n, K])`` at a time, each valid until the next."""
    inputs = data.shape[1] // BLOCKS[type].bytes * BLOCKS[type].weights
    step = max(1, (BLOCK_WEIGHTS if data.device.type == "cpu" else BLOCK_WEIGHTS_GPU) // inputs)
    for start in range(0, data.shape[0], step):
        rows = data[start : start + step]
        yield start, dequantise(type, rows, scratch.take("ggml", (len(rows), inputs), torch.float32, data.device))


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


class GgmlLinear(PackedLinear):
    """``data [out_features, row_bytes]`` uint8: rows of blocks, all of one type."""

    as_in_file = True
    held = ("data",)

    def __init__(self, shape: LinearShape, target: Target, device: torch.device, native: bool = False) -> None:
        """``native``: by Kvasir's code, where it does not decline."""
        super().__init__(shape, target, device)
        block = BLOCKS[shape.block_type]
        self.type, self.kind = shape.block_type, block.name
        self.path = PATH if native else "dequantise and multiply"
        self._native: NativeBlocks | None = None
        size = (shape.out_features, block.row_bytes(shape.in_features))
        self.data = torch.empty(size, dtype=torch.uint8, device=device)
        if native and device.type == "cpu":
            prefer_huge_pages(self.data)

    def fill(self, parts: Sequence[GgmlWeights]) -> None:
        put(parts, self.data)
        self.hold(self.data)

    def hold(self, data: Tensor) -> None:
        """Take over ``data``, contiguous, which is kept and not copied."""
        self.data, self.device = data, data.device
        if self.path == PATH and data.device.type == "cpu":
            self._native = NativeBlocks(self.type, data)

    def forward(self, x: Tensor) -> Tensor:
        # The native product is batch-invariant; torch's with dequantised weights is not.
        if self.numerics.batch_invariant or (self._native is not None and x.shape[0] <= FEW_ROWS):
            return self.forward_float32(x).to(x.dtype)
        out = x.new_empty(x.shape[0], self.out_features)
        for start, block in self._rounded(x.dtype):
            out[:, start : start + len(block)] = x @ block.t()
        return out if self.bias is None else out.add_(self.bias)

    def forward_float32(self, x: Tensor) -> Tensor:
        if self._native is not None:
            out = self._native.matmul(x if x.dtype == self.dtype else x.float())
        else:
            blocks = ((start, block.t()) for start, block in _blocks(self.type, self.data))
            out = tiled_matmul(x, blocks, self.out_features)
        return out if self.bias is None else out.add_(self.bias)

    def _rounded(self, dtype: torch.dtype) -> Iterator[tuple[int, Tensor]]:
        """The matrix in ``dtype``, ``(first output feature, [n, K])`` at a time, each valid until the next."""
        if self._native is None or dtype != torch.bfloat16:
            for start, block in _blocks(self.type, self.data):
                yield start, block.to(dtype)
            return
        step = max(1, 2 * BLOCK_WEIGHTS // self.in_features)
        for start in range(0, self.out_features, step):
            stop = min(start + step, self.out_features)
            shape = (stop - start, self.in_features)
            rounded = scratch.take("ggml", shape, dtype, self.data.device)
            self._native.round(start, stop, rounded)
            yield start, rounded

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        weight = torch.empty(self.out_features, self.in_features, dtype=dtype, device=self.data.device)
        write_dense(GgmlWeights(self.type, self.data, self.in_features), weight)
        return weight


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
