"""ggml's blocks on a GPU, by Kvasir's own Triton kernels."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from engine.compute.layers.linear.base import LinearShape, Target
from engine.compute.layers.linear.ggml import GgmlWeights, put
from engine.compute.layers.linear.ggml_blocks import (
    BLOCKS,
    CODEBOOKS,
    IQ1_M,
    IQ4_NL,
    IQ4_VALUES,
    IQ4_XS,
    MXFP4,
    MXFP4_VALUES,
    Q8_0,
    dequantise,
)
from engine.compute.layers.linear.ggml_codebooks import book
from engine.compute.layers.linear.triton import ggml_planes
from engine.compute.layers.linear.triton.int8 import TritonQ8Linear
from engine.compute.layers.linear.triton.layer import TritonLinear
from engine.compute.layers.linear.triton.runtime import Tile, aligned, tensor_cores
from engine.compute.layers.linear.triton.trial import disagrees

PLANE = 32
TABLES = {IQ4_NL: IQ4_VALUES, IQ4_XS: IQ4_VALUES, MXFP4: MXFP4_VALUES}


class TritonGgmlLinear(TritonLinear):
    """``data [N, row_bytes]`` uint8: rows of blocks, all of one type."""

    held = ("data",)  # layers of a type share one table

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        super().__init__(shape, target, device)
        block = BLOCKS[shape.block_type]
        self.type, self.kind = shape.block_type, block.name
        size = (shape.out_features, block.row_bytes(shape.in_features))
        self.data = torch.empty(size, dtype=torch.uint8, device=device)
        self.table = _table(self.type, device)
        parts = shape.in_features // PLANE
        self.turn = 8 if block.weights == 256 else next(turn for turn in (4, 2, 1) if parts % turn == 0)
        self.program_inputs = self.turn * PLANE

    def fill(self, parts: Sequence[GgmlWeights]) -> None:
        put(parts, self.data)

    def hold(self, data: Tensor) -> None:
        """Take over ``data``, which is kept and, at an address that 16 divides, not copied."""
        self.data, self.device, self.table = aligned(data), data.device, _table(self.type, data.device)

    def kernels(self) -> Any:
        from engine.compute.layers.linear.triton.kernels import blocks

        return blocks

    def tensors(self) -> tuple[Tensor | None, ...]:
        return self.data, self.table

    def sizes(self) -> tuple[int | float, ...]:
        return self.in_features, self.data.shape[1]

    def constants(self) -> dict[str, Any]:
        name, weights, size = BLOCKS[self.type][:3]
        return {"TYPE": name, "BYTES": size, "WEIGHTS": weights, "PLANE": PLANE, "TURN": self.turn}

    def product_constants(self, dtype: torch.dtype) -> dict[str, Any]:
        return {}

    def stages(self, cut: Tile) -> int:
        # Pipelined, looked-up values would be fetched into shared memory, more than there is.
        return cut.stages if self.table is None else 1


@functools.cache
def _table(type: int, device: torch.device) -> Tensor | None:
    """Lookup table of a type's codes, float32, or of a codebook's entries, int8; None where codes are numbers."""
    if (name := CODEBOOKS.get(type)) is not None:
        return book(name, device).flatten()
    values = TABLES.get(type)
    with torch.inference_mode(False):
        return None if values is None else torch.tensor(values, dtype=torch.float32, device=device)


Layer = ggml_planes.TritonGgmlPlanes | TritonQ8Linear | TritonGgmlLinear


def make(shape: LinearShape, target: Target, device: torch.device) -> Layer:
    """The layer of a matrix of blocks, not yet filled, as its type is read fastest."""
    if ggml_planes.serves(shape.block_type, shape.in_features):
        return ggml_planes.TritonGgmlPlanes(shape, target, device)
    if shape.block_type != Q8_0:
        return TritonGgmlLinear(shape, target, device)
    block = BLOCKS[Q8_0].weights
    return TritonQ8Linear(replace(shape, group=block, scales=torch.float16, symmetric=True), target, device)


def of_data(type: int, data: Tensor, target: Target, raw: bool = False) -> Layer:
    """The layer of a matrix ``data [N, row_bytes]`` of blocks; ``raw``: a :class:`TritonGgmlLinear`."""
    part = GgmlWeights(type, data, data.shape[1] // BLOCKS[type].bytes * BLOCKS[type].weights)
    shape = LinearShape("ggml", part.in_features, len(data), block_type=type)
    layer = (TritonGgmlLinear if raw else make)(shape, target, target.device)
    layer.fill([part])
    return layer


def triton_declines(shape: LinearShape, target: Target, raw: bool = False) -> str | None:
    """Reason kernels do not serve a layer that :func:`make` makes; None when they do, as a trial here has shown.

    ``raw``: the same for a :class:`TritonGgmlLinear`.
    """
    if not (tensor_cores(target.device) or ggml_planes.serves(shape.block_type, shape.in_features)):
        return f"on GPUs older than compute capability 8.0 there is none for {BLOCKS[shape.block_type].name}"
    return _disagrees(shape.block_type, shape.in_features % 128 == 0, raw, target.dtype, target.device)


@functools.cache
def _disagrees(type: int, whole: bool, raw: bool, dtype: torch.dtype, device: torch.device) -> str | None:
    """``whole``: rows are whole turns of the kernels' loops.

    Of 4096 input features, so that 16 divides the bytes of a row: else another kernel would be tried than is used.
    """
    data = sample(type, 72, 4096 if whole else 1120)

    def layer(target: Target) -> Layer:
        return of_data(type, data.to(device), target, raw)

    return disagrees(("ggml", type, whole, raw), layer, lambda: dequantise(type, data), dtype, device)


def sample(type: int, rows: int, in_features: int) -> Tensor:
    """Random rows of blocks ``[rows, row_bytes]`` whose weights are of ordinary size, to try a kernel with."""
    generator = torch.Generator().manual_seed(1)
    block = BLOCKS[type]
    count = rows * in_features // block.weights
    data = torch.randint(0, 256, (count, block.bytes), dtype=torch.uint8, generator=generator)
    if type == MXFP4:
        data[:, 0] = torch.randint(118, 124, (count,), dtype=torch.uint8, generator=generator)
    for at in () if type == MXFP4 else HALVES.get(block.name, (0,)):
        halves = (torch.rand(count, 1, generator=generator) * 2 - 1).mul_(0.01).half()
        data[:, at : at + 2] = halves.view(torch.uint8)
    if type == IQ1_M:
        # Its float16 is spread over the upper halves of four bytes: the last two make it about 2^-6.
        data[:, 53:57:2] &= 15
        data[:, 53:57:2] |= torch.tensor([64, 32], dtype=torch.uint8)
    return data.view(rows, -1)


HALVES = {
    "Q4_1": (0, 2),
    "Q5_1": (0, 2),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ1_M": (),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
}
"""Byte offsets of float16 numbers in blocks; elsewhere at their beginning."""
