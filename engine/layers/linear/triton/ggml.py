"""ggml's blocks on a GPU, by Kvasir's own Triton kernels."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from engine.layers.linear.base import LinearShape, Target
from engine.layers.linear.ggml import GgmlWeights, put
from engine.layers.linear.ggml_blocks import BLOCKS, IQ4_NL, IQ4_VALUES, IQ4_XS, MXFP4, MXFP4_VALUES, Q8_0, dequantise
from engine.layers.linear.triton import ggml_planes
from engine.layers.linear.triton.int8 import TritonQ8Linear
from engine.layers.linear.triton.layer import TritonLinear
from engine.layers.linear.triton.runtime import Tile, Trial, aligned, disagrees
from engine.layers.numerics import Numerics
from engine.native.proof import machine_declines

PLANE = 32
DEQUANTISED = 32
TABLES = {IQ4_NL: IQ4_VALUES, IQ4_XS: IQ4_VALUES, MXFP4: MXFP4_VALUES}


class TritonGgmlLinear(TritonLinear):
    """``data [N, row_bytes]`` uint8: rows of blocks, all of one type."""

    held = ("data", "table")

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        super().__init__(shape, target, device)
        block = BLOCKS[shape.block_type]
        self.type, self.kind = shape.block_type, block.name
        size = (shape.out_features, block.row_bytes(shape.in_features))
        self.data = torch.empty(size, dtype=torch.uint8, device=device)
        self.table = _table(self.type, device)
        parts = shape.in_features // PLANE
        self.turn = 8 if block.weights == 256 else next(turn for turn in (4, 2, 1) if parts % turn == 0)

    def fill(self, parts: Sequence[GgmlWeights]) -> None:
        put(parts, self.data)

    def hold(self, data: Tensor) -> None:
        """Take over ``data``, which is kept and, at an address that 16 divides, not copied."""
        self.data, self.device, self.table = aligned(data), data.device, _table(self.type, data.device)

    def launch_multiply(self, x: Tensor, out: Tensor, cut: Tile) -> None:
        from engine.layers.linear.triton import blocks

        grid = (-(-self.out_features // cut.outputs), -(-len(x) // cut.rows))
        blocks.multiply[grid](
            x,
            self.data,
            self.table,
            self.bias,
            out,
            len(x),
            self.out_features,
            self.in_features,
            self.data.shape[1],
            **self._form(),
            BIAS=self.bias is not None,
            MB=cut.rows,
            BN=cut.outputs,
            SLICES=cut.slices,
            num_warps=cut.slices,
            # Pipelined, looked-up values would be fetched into shared memory, more than there is.
            num_stages=cut.stages if self.table is None else 1,
        )

    def launch_dequantise(self, start: int, stop: int, out: Tensor) -> None:
        from engine.layers.linear.triton import blocks

        grid = (-(-(stop - start) // DEQUANTISED), self.in_features // (self.turn * PLANE))
        blocks.dequantise[grid](
            self.data,
            self.table,
            out,
            start,
            stop,
            self.in_features,
            self.data.shape[1],
            **self._form(),
            BN=DEQUANTISED,
            num_warps=4,
            # ggml rounds the product before it adds.
            enable_fp_fusion=False,
        )

    def _form(self) -> dict[str, int | str]:
        block = BLOCKS[self.type]
        return {
            "TYPE": block.name,
            "BYTES": block.bytes,
            "WEIGHTS": block.weights,
            "PLANE": PLANE,
            "TURN": self.turn,
        }


def _table(type: int, device: torch.device) -> Tensor | None:
    """What the codes of a type look up, float32."""
    values = TABLES.get(type)
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
    """Why the kernels do not serve a layer that :func:`make` makes; None when they do, which they have then proved.

    ``raw``: the same for a :class:`TritonGgmlLinear`.
    """
    whole = shape.in_features % 128 == 0
    return machine_declines(target.dtype, target.device) or _disagrees(
        shape.block_type, whole, raw, target.dtype, target.device
    )


@functools.cache
def _disagrees(type: int, whole: bool, raw: bool, dtype: torch.dtype, device: torch.device) -> str | None:
    """``whole``: rows are whole turns of the kernels' loops.

    Of 4096 input features, so that 16 divides the bytes of a row: else another kernel would be tried than is used.
    """
    data = sample(type, 72, 4096 if whole else 1120)

    def trial() -> Trial:
        moved = data.to(device)
        targets = {invariant: Target(dtype, device, Numerics(invariant)) for invariant in (False, True)}
        made = {invariant: of_data(type, moved, target, raw) for invariant, target in targets.items()}

        def multiply(x: Tensor, fixed: bool) -> Tensor:
            return made[True].forward_float32(x) if fixed else made[False].forward(x)

        return Trial(multiply, made[False].dequantised(torch.float32), dequantise(type, data))

    return disagrees(trial, dtype, device)


def sample(type: int, rows: int, in_features: int, seed: int = 1) -> Tensor:
    """Random rows of blocks ``[rows, row_bytes]`` whose weights are of ordinary size, to try a kernel with."""
    generator = torch.Generator().manual_seed(seed)
    block = BLOCKS[type]
    count = rows * in_features // block.weights
    data = torch.randint(0, 256, (count, block.bytes), dtype=torch.uint8, generator=generator)
    if type == MXFP4:
        data[:, 0] = torch.randint(118, 124, (count,), dtype=torch.uint8, generator=generator)
    for at in () if type == MXFP4 else HALVES.get(block.name, (0,)):
        halves = (torch.rand(count, 1, generator=generator) * 2 - 1).mul_(0.01).half()
        data[:, at : at + 2] = halves.view(torch.uint8)
    return data.view(rows, -1)


HALVES = {
    "Q4_1": (0, 2),
    "Q5_1": (0, 2),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
"""Where blocks hold float16 numbers; elsewhere at their beginning."""
