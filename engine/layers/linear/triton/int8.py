"""8-bit weights on a GPU, by Kvasir's own Triton kernels: LLM.int8, 8-bit groups, and ggml's Q8_0."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from engine.layers.linear.base import LinearShape, Target
from engine.layers.linear.coded import each
from engine.layers.linear.ggml import GgmlWeights
from engine.layers.linear.ggml_blocks import BLOCKS, Q8_0
from engine.layers.linear.int8 import put_rows, signed, signed_rows
from engine.layers.linear.triton import inline
from engine.layers.linear.triton.layer import TritonLinear
from engine.layers.linear.triton.runtime import Tile, Trial, disagrees, inlines
from engine.layers.numerics import Numerics
from engine.native.proof import machine_declines

PLANES = (128, 64, 32, 16)
TURN = 128
"""Input features that a slice takes in one turn of the loop."""
DEQUANTISED = 32


class TritonInt8Linear(TritonLinear):
    """``W[n, k] = (codes[n, k] - zeros[g, n]) * scales[g, n] * factor``, g the group of input feature k."""

    kind = "int8"
    held = ("codes", "scales", "zeros")
    factor = 1.0

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        super().__init__(shape, target, device)
        plane = plane_of(shape.in_features, shape.group)
        assert plane is not None, "see triton_declines"
        self.plane, self.group = plane, shape.group
        groups = (shape.groups, shape.out_features)
        self.codes = torch.empty(shape.out_features, shape.in_features, dtype=torch.int8, device=device)
        self.scales = torch.empty(groups, dtype=shape.scales, device=device)
        self.zeros = None if shape.symmetric else torch.empty(groups, dtype=torch.int8, device=device)

    def fill(self, parts: Sequence[Any]) -> None:
        """Unpack parts (CodedWeights) whose groups are runs, some output features at a time."""
        for place, _, (words, scales, zeros) in each(parts):
            self.codes[place], self.scales[:, place] = signed_rows(words, self.in_features), scales
            if self.zeros is not None:
                self.zeros[:, place] = signed(zeros)

    def launch_multiply(self, x: Tensor, out: Tensor, cut: Tile) -> None:
        from engine.layers.linear.triton import bytes8

        grid = (-(-self.out_features // cut.outputs), -(-len(x) // cut.rows))
        bytes8.multiply[grid](
            x,
            self.codes,
            self.scales,
            self.zeros,
            self.bias,
            out,
            len(x),
            self.out_features,
            self.in_features,
            self.factor,
            PLANE=self.plane,
            TURN=TURN // self.plane,
            GROUP=self.group,
            ZEROS=self.zeros is not None,
            BIAS=self.bias is not None,
            MB=cut.rows,
            BN=cut.outputs,
            SLICES=cut.slices,
            ASM=inline.signed_bytes(x.dtype) if inlines(self.device) else "",
            num_warps=cut.slices,
            num_stages=cut.stages,
        )

    def launch_dequantise(self, start: int, stop: int, out: Tensor) -> None:
        from engine.layers.linear.triton import bytes8

        grid = (-(-(stop - start) // DEQUANTISED), self.in_features // self.plane)
        bytes8.dequantise[grid](
            self.codes,
            self.scales,
            self.zeros,
            out,
            start,
            stop,
            self.out_features,
            self.in_features,
            self.factor,
            PLANE=self.plane,
            GROUP=self.group,
            ZEROS=self.zeros is not None,
            BN=DEQUANTISED,
            num_warps=4,
        )


class TritonInt8RowsLinear(TritonInt8Linear):
    """LLM.int8: one scale a row, of which a 127th counts."""

    factor = 1 / 127

    def fill(self, parts: Sequence[Any]) -> None:
        """Copy parts (Int8Rows) whose codes are in rows already."""
        put_rows(parts, self.codes, self.scales[0])


class TritonQ8Linear(TritonInt8Linear):
    """ggml's Q8_0: a float16 scale and then the codes of each block."""

    kind = BLOCKS[Q8_0].name

    def fill(self, parts: Sequence[GgmlWeights]) -> None:
        """Copy the parts' codes and scales, which are taken apart."""
        start = 0
        for part in parts:
            blocks = part.data.view(len(part.data), -1, BLOCKS[Q8_0].bytes)
            place = slice(start, start + len(blocks))
            self.codes[place] = blocks[..., 2:].flatten(1).view(torch.int8)
            self.scales[:, place] = blocks[..., :2].contiguous().view(torch.float16)[..., 0].t()
            start = place.stop


def plane_of(in_features: int, group: int) -> int | None:
    return next((plane for plane in PLANES if group % plane == 0 and in_features % plane == 0), None)


def triton_declines(shape: LinearShape, target: Target) -> str | None:
    """Why the kernels do not serve a layer; None when they do, which they have then proved on this device."""
    reason = machine_declines(target.dtype, target.device)
    if reason is not None:
        return reason
    if shape.ordered:
        return "its groups are not runs of input features"
    plane = plane_of(shape.in_features, shape.group)
    if plane is None or shape.in_features % shape.group:
        return f"it has no groups of {shape.group} over {shape.in_features} input features"
    return _disagrees(plane, shape.scales, not shape.symmetric, target.dtype, target.device)


@functools.cache
def _disagrees(plane: int, scales: torch.dtype, zeros: bool, dtype: torch.dtype, device: torch.device) -> str | None:
    sample = Int8Sample(72, max(plane, TURN) * 3, plane, scales, zeros)

    def trial() -> Trial:
        made = {invariant: sample.layer(Target(dtype, device, Numerics(invariant))) for invariant in (False, True)}

        def multiply(x: Tensor, fixed: bool) -> Tensor:
            return made[True].forward_float32(x) if fixed else made[False].forward(x)

        return Trial(multiply, made[False].dequantised(torch.float32), sample.weight())

    return disagrees(trial, dtype, device)


class Int8Sample:
    """Random weights of this kind, to try a kernel with."""

    def __init__(
        self,
        outputs: int,
        inputs: int,
        group: int,
        scales: torch.dtype,
        zeros: bool,
        factor: float = 1.0,
        seed: int = 1,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        groups = (outputs, inputs // group)
        self.shape = LinearShape("int8", inputs, outputs, 8, group, scales, symmetric=not zeros)
        self.group, self.factor = group, factor
        self.codes = torch.randint(-128, 128, (outputs, inputs), generator=generator).to(torch.int8)
        self.scales = (torch.rand(groups, generator=generator) * 0.02 + 0.005).to(scales)
        self.zeros = torch.randint(-128, 128, groups, generator=generator).to(torch.int8) if zeros else None

    def layer(self, target: Target) -> TritonInt8Linear:
        made = TritonInt8Linear(self.shape, target, target.device)
        made.factor = self.factor
        made.codes.copy_(self.codes)
        made.scales.copy_(self.scales.t())
        if made.zeros is not None and self.zeros is not None:
            made.zeros.copy_(self.zeros.t())
        return made

    def weight(self) -> Tensor:
        """``[N, K]`` float32 by the definition."""
        zeros = 0.0 if self.zeros is None else self.zeros.float().repeat_interleave(self.group, 1)
        scales = self.scales.float().repeat_interleave(self.group, 1)
        return (self.codes.float() - zeros) * scales * self.factor
