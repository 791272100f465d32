"""Linear layers and the token table over ggml's blocks, held byte for byte as in a GGUF file.

The path here, always possible, dequantises some output features at a time, in float32 as ggml does it and then rounded
once to the model's dtype. Q4_0 is repacked, without loss, into the group-affine int4 form and gets the paths of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from engine.compute.layers.linear.affine import AffineColumns
from engine.compute.layers.linear.base import LinearShape, Target
from engine.compute.layers.linear.blocks import scratch
from engine.compute.layers.linear.blockwise import BlockwiseLinear
from engine.compute.layers.linear.ggml_blocks import BLOCKS, Q4_0, dequantise
from engine.compute.layers.numerics import Numerics

BLOCK_WEIGHTS = 1 << 21
"""Weights dequantised at a time on a CPU: 8 MB of float32, which stays in a last-level cache."""
BLOCK_WEIGHTS_GPU = 1 << 24
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
    """A Q4_0 matrix as `AffineWeights`: zero-points of 8, one scale a block."""

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

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        super().__init__(shape, target, device)
        block = BLOCKS[shape.block_type]
        self.type, self.kind = shape.block_type, block.name
        size = (shape.out_features, block.row_bytes(shape.in_features))
        self.data = torch.empty(size, dtype=torch.uint8, device=device)

    def fill(self, parts: Sequence[GgmlWeights]) -> None:
        put(parts, self.data)
        self.hold(self.data)

    def hold(self, data: Tensor) -> None:
        """Take over ``data``, contiguous, which is kept and not copied."""
        self.data, self.device = data, data.device
        self.block_weights = BLOCK_WEIGHTS if data.device.type == "cpu" else BLOCK_WEIGHTS_GPU

    def rows(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        out = scratch.take("ggml", (stop - start, self.in_features), torch.float32, self.device)
        return dequantise(self.type, self.data[start:stop], out)


class TiedHead(Protocol):
    """An output layer that holds the token table's weights in a form of its own."""

    device: torch.device

    def fill(self, parts: Sequence[GgmlWeights]) -> None: ...

    def rows(self, features: Tensor, dtype: torch.dtype) -> Tensor: ...


class GgmlEmbedding:
    """The token table (a TokenTable) as a GGUF file holds it; only rows that are looked up are dequantised.

    ``head`` is an output layer that has taken the weights over, in a form of its own, and gives rows of them.
    """

    def __init__(self, weights: GgmlWeights, dtype: torch.dtype, device: torch.device, in_file: bool = False) -> None:
        """``weights.data [vocab_size, row_bytes]`` is copied to ``device``, unless it is to stay ``in_file`` that it is
        a view of; ``dtype`` is the model's."""
        self.data = weights.data if in_file else weights.data.to(device, copy=True)
        self.in_file = in_file
        self.type, self.in_features, self.dtype = weights.type, weights.in_features, dtype
        self.head: TiedHead | None = None

    def forward(self, tokens: Tensor) -> Tensor:
        if self.head is not None:
            return self.head.rows(tokens, self.dtype)
        out = torch.empty(len(tokens), self.in_features, dtype=self.dtype, device=self.data.device)
        step = max(1, BLOCK_WEIGHTS // self.in_features)
        for start in range(0, len(tokens), step):
            rows = self.data.index_select(0, tokens[start : start + step])
            out[start : start + step] = dequantise(self.type, rows)
        return out

    def hand_over(self, head: TiedHead) -> None:
        """Let ``head`` hold the weights from now on."""
        if head.device.type != "meta":
            head.fill([GgmlWeights(self.type, self.data, self.in_features)])
        self.head, self.data = head, self.data.new_empty(0)

    def read_in(self) -> Tensor:
        """Hold the bytes in memory from now on, and return them."""
        if self.in_file:
            self.data, self.in_file = self.data.clone(), False
        return self.data

    def storage_size(self) -> int:
        return 0 if self.in_file else self.data.numel()
