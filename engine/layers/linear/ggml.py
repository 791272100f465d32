"""Linear layers and the token table over ggml's blocks, held byte for byte as in a GGUF file.

Fast paths in order of preference: Kvasir's Triton kernels on a GPU; Kvasir's native code on a CPU, which multiplies the
codes as they are and never rounds a weight; and, always possible, dequantising some output features at a time, in
float32 as ggml does it and then rounded once to the model's dtype. Q4_0 is repacked, without loss, into the
group-affine int4 form and gets the fast paths of that; other types of 4 bits are repacked for a GPU (ggml_planes.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.layers.linear import int4
from engine.layers.linear.affine import AffineColumns
from engine.layers.linear.base import Declined, Linear
from engine.layers.linear.blocks import scratch
from engine.layers.linear.dense import Concatenated
from engine.layers.linear.ggml_blocks import BLOCKS, Q4_0, dequantise
from engine.layers.linear.ggml_native import PATH, NativeBlocks, prefer_huge_pages
from engine.layers.linear.tiled import tiled_matmul
from engine.layers.linear.triton import ggml as triton_ggml
from engine.layers.numerics import Numerics
from engine.native.library import declines

BLOCK_WEIGHTS = 1 << 21
"""Weights dequantised at a time on a CPU: 8 MB of float32, which stays in a last-level cache."""
BLOCK_WEIGHTS_GPU = 1 << 24
FEW_ROWS = 16
"""Up to so many rows the native product is the faster path in bfloat16. Milliseconds of one AVX512-BF16 core, Q4_K,
2048 x 8192, at 1 / 4 / 8 / 16 / 32 rows: the product 0.4 / 1.0 / 2.0 / 4.1 / 7.8; rounding the weights to bfloat16 and
multiplying 3.4 / 3.7 / 3.8 / 4.7 / 6.8; dequantising by torch's operations and multiplying 40 for one row."""
GROUP = BLOCKS[Q4_0].weights


class GgmlWeights(NamedTuple):
    """A matrix ``[N, in_features]`` as a GGUF file holds it: ``data`` uint8 [N, row_bytes] of blocks of ``type``."""

    type: int
    data: Tensor
    in_features: int


def build(
    parts: Sequence[GgmlWeights],
    bias: Tensor | None,
    dtype: torch.dtype,
    device: torch.device,
    numerics: Numerics,
    native: bool = True,
) -> Linear:
    """One layer of matrices fused along their output features; they agree in input features.

    Neighbours of one type share a layer; layers of several types stand side by side. On device "meta" the result has
    the sizes of the real one. ``native=False`` leaves Kvasir's own kernels out of the choice.
    """
    runs = [list(run) for _, run in itertools.groupby(parts, key=lambda part: part.type)]
    sizes = [sum(part.data.shape[0] for part in run) for run in runs]
    biases: Sequence[Tensor | None] = [None] * len(runs) if bias is None else bias.split(sizes)
    layers = [_fused(run, own, dtype, device, numerics, native) for run, own in zip(runs, biases, strict=True)]
    return layers[0] if len(layers) == 1 else Concatenated(layers)


def _fused(
    parts: Sequence[GgmlWeights],
    bias: Tensor | None,
    dtype: torch.dtype,
    device: torch.device,
    numerics: Numerics,
    native: bool,
) -> Linear:
    """The layer of parts of one type."""
    kind, inputs = parts[0].type, parts[0].in_features
    if kind == Q4_0 and device.type != "meta":
        return int4.build([AffineQ4(part) for part in parts], bias, dtype, device, numerics, native)
    layer = empty(kind, inputs, sum(part.data.shape[0] for part in parts), dtype, device, numerics, native)
    layer.bias = bias
    if isinstance(layer, GgmlLinear) and device.type != "meta":
        start = 0
        for part in parts:
            stop = start + part.data.shape[0]
            layer.data[start:stop] = part.data
            start = stop
        return _on_gpu(layer) if native else layer
    return layer


def _on_gpu(layer: GgmlLinear) -> Linear:
    """The same layer over Triton kernels, where they serve it."""
    if layer.data.device.type != "cuda":
        return layer
    reason = triton_ggml.triton_declines(layer.type, layer.in_features, layer.dtype, layer.data.device)
    if reason is None:
        return triton_ggml.make(layer.type, layer.data, layer.bias, layer.dtype, layer.numerics)
    layer.declined = [Declined(triton_ggml.TritonGgmlLinear.path, reason)]
    return layer


def empty(
    type: int,
    in_features: int,
    out_features: int,
    dtype: torch.dtype,
    device: torch.device,
    numerics: Numerics,
    native: bool = True,
) -> GgmlLinear | int4.Int4Linear | int4.NativeInt4Linear:
    """The layer that holds a matrix of these sizes, not yet filled (on device "meta": to plan with)."""
    row_bytes = BLOCKS[type].row_bytes(in_features)
    if type == Q4_0:
        return int4.empty(
            in_features, out_features, GROUP, torch.float16, dtype, device, numerics, native, symmetric=True
        )[0]
    data = torch.empty(out_features, row_bytes, dtype=torch.uint8, device=device)
    if native and device.type == "cpu":
        prefer_huge_pages(data)
    return GgmlLinear(type, data, None, dtype, numerics, native)


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


class GgmlLinear(Linear):
    """``data [out_features, row_bytes]`` uint8: rows of blocks, all of one type."""

    as_in_file = True

    def __init__(
        self,
        type: int,
        data: Tensor,
        bias: Tensor | None,
        dtype: torch.dtype,
        numerics: Numerics,
        native: bool = True,
    ) -> None:
        """``data``, contiguous, is kept and not copied."""
        block = BLOCKS[type]
        self.type, self.data, self.bias, self.dtype, self.numerics = type, data, bias, dtype, numerics
        self.kind = block.name
        self.out_features = data.shape[0]
        self.in_features = data.shape[1] // block.bytes * block.weights
        self.path, self.declined = "dequantise and multiply", []
        self._native: NativeBlocks | None = None
        reason = declines(dtype, data.device) if native else None
        if native and reason is None:
            self.path = PATH
            if data.device.type == "cpu":
                self._native = NativeBlocks(type, data)
        elif reason is not None and data.device.type == "cpu":
            self.declined = [Declined(PATH, reason)]

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

    def storage_size(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in (self.data, self.bias) if tensor is not None)


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

    def head(self, numerics: Numerics, native: bool = True) -> Linear:
        """The output layer of a model that ties it to this table: the same bytes, not held twice."""
        layer = GgmlLinear(self.type, self.data, None, self.dtype, numerics, native)
        if self.data.device.type != "cuda" or not native:
            return layer
        reason = triton_ggml.raw_declines(self.type, self.in_features, self.dtype, self.data.device)
        if reason is None:
            return triton_ggml.TritonGgmlLinear(self.type, self.data, None, self.dtype, numerics)
        layer.declined = [Declined(triton_ggml.TritonGgmlLinear.path, reason)]
        return layer

    def storage_size(self) -> int:
        return self.data.numel()
