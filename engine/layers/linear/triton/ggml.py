"""ggml's blocks on a GPU, by Kvasir's own Triton kernels."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from engine.layers.linear.ggml_blocks import BLOCKS, IQ4_NL, IQ4_VALUES, IQ4_XS, MXFP4, MXFP4_VALUES, Q8_0, dequantise
from engine.layers.linear.triton import ggml_planes
from engine.layers.linear.triton.int8 import TritonInt8Linear
from engine.layers.linear.triton.layer import TritonLinear
from engine.layers.linear.triton.runtime import Tile, Trial, aligned, disagrees, machine_declines
from engine.layers.numerics import Numerics

PLANE = 32
DEQUANTISED = 32
TABLES = {IQ4_NL: IQ4_VALUES, IQ4_XS: IQ4_VALUES, MXFP4: MXFP4_VALUES}


class TritonGgmlLinear(TritonLinear):
    """``data [N, row_bytes]`` uint8: rows of blocks, all of one type."""

    held = ("data", "table")

    def __init__(self, type: int, data: Tensor, bias: Tensor | None, dtype: torch.dtype, numerics: Numerics) -> None:
        """``data`` is kept and, at an address that 16 divides, not copied."""
        block = BLOCKS[type]
        inputs = data.shape[1] // block.bytes * block.weights
        super().__init__(inputs, data.shape[0], dtype, data.device, numerics)
        self.type, self.kind, self.data, self.bias = type, block.name, aligned(data), bias
        table = TABLES.get(type)
        self.table = None if table is None else torch.tensor(table, dtype=torch.float32, device=data.device)
        parts = inputs // PLANE
        self.turn = 8 if block.weights == 256 else next(turn for turn in (4, 2, 1) if parts % turn == 0)

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


def make(type: int, data: Tensor, bias: Tensor | None, dtype: torch.dtype, numerics: Numerics) -> TritonLinear:
    """The layer of a matrix ``data [N, row_bytes]`` of blocks, which it may keep."""
    if ggml_planes.serves(type, data.shape[1] // BLOCKS[type].bytes * BLOCKS[type].weights):
        return ggml_planes.TritonGgmlPlanes(type, data, bias, dtype, numerics)
    if type != Q8_0:
        return TritonGgmlLinear(type, data, bias, dtype, numerics)
    blocks = data.view(len(data), -1, BLOCKS[Q8_0].bytes)
    scales = blocks[..., :2].contiguous().view(torch.float16)[..., 0]
    layer = TritonInt8Linear(blocks[..., 2:].flatten(1).view(torch.int8), scales, None, bias, dtype, numerics)
    layer.kind = BLOCKS[Q8_0].name
    return layer


def triton_declines(type: int, in_features: int, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why the kernels do not serve a layer that :func:`make` makes; None when they do, which they have then proved."""
    return machine_declines(dtype, device) or _disagrees(type, in_features % 128 == 0, False, dtype, device)


def raw_declines(type: int, in_features: int, dtype: torch.dtype, device: torch.device) -> str | None:
    """As :func:`triton_declines` for a :class:`TritonGgmlLinear`."""
    return machine_declines(dtype, device) or _disagrees(type, in_features % 128 == 0, True, dtype, device)


@functools.cache
def _disagrees(type: int, whole: bool, raw: bool, dtype: torch.dtype, device: torch.device) -> str | None:
    """``whole``: rows are whole turns of the kernels' loops.

    Of 4096 input features, so that 16 divides the bytes of a row: else another kernel would be tried than is used.
    """
    data = sample(type, 72, 4096 if whole else 1120)

    def trial() -> Trial:
        moved = data.to(device)
        of_type = TritonGgmlLinear if raw else make
        made = {invariant: of_type(type, moved, None, dtype, Numerics(invariant)) for invariant in (False, True)}

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
