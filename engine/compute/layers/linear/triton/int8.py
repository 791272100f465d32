"""8-bit weights on a GPU, by Kvasir's own Triton kernels: LLM.int8, 8-bit groups, and ggml's Q8_0."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from engine.compute.layers.linear.base import LinearShape, Target
from engine.compute.layers.linear.coded import each
from engine.compute.layers.linear.ggml import GgmlWeights
from engine.compute.layers.linear.ggml_blocks import BLOCKS, Q8_0
from engine.compute.layers.linear.int8 import put_rows, signed, signed_rows
from engine.compute.layers.linear.triton.kernels import inline
from engine.compute.layers.linear.triton.layer import TritonLinear
from engine.compute.layers.linear.triton.trial import disagrees
from engine.compute.native.gpu import inlines

PLANES = (128, 64, 32, 16)
TURN = 128
"""Input features that a slice takes in one turn of the loop."""


class TritonInt8Linear(TritonLinear):
    """``W[n, k] = (codes[n, k] - zeros[g, n]) * scales[g, n] * factor``, g the group of input feature k."""

    kind = "int8"
    held = ("codes", "scales", "zeros")
    factor = 1.0

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        super().__init__(shape, target, device)
        plane = plane_of(shape.in_features, shape.group)
        assert plane is not None, "see triton_declines"
        self.program_inputs, self.group = plane, shape.group
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

    def kernels(self) -> Any:
        from engine.compute.layers.linear.triton.kernels import bytes8

        return bytes8

    def tensors(self) -> tuple[Tensor | None, ...]:
        return self.codes, self.scales, self.zeros

    def sizes(self) -> tuple[int | float, ...]:
        return self.in_features, self.factor

    def constants(self) -> dict[str, Any]:
        return {"PLANE": self.program_inputs, "GROUP": self.group, "ZEROS": self.zeros is not None}

    def product_constants(self, dtype: torch.dtype) -> dict[str, Any]:
        asm = inline.signed_bytes(dtype) if inlines(self.device) else ""
        return {"TURN": TURN // self.program_inputs, "ASM": asm}


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
    """Reason the kernels do not serve a layer; None when they do, as a trial on this device has shown."""
    if shape.ordered:
        return "its groups are not runs of input features"
    plane = plane_of(shape.in_features, shape.group)
    if plane is None or shape.in_features % shape.group:
        return f"it has no groups of {shape.group} over {shape.in_features} input features"
    return _disagrees(plane, shape.scales, not shape.symmetric, target.dtype, target.device)


@functools.cache
def _disagrees(plane: int, scales: torch.dtype, zeros: bool, dtype: torch.dtype, device: torch.device) -> str | None:
    sample = Int8Sample(72, max(plane, TURN) * 3, plane, scales, zeros)
    return disagrees(("int8", plane, scales, zeros), sample.layer, sample.weight, dtype, device)


class Int8Sample:
    """Random weights of this kind, to try a kernel with."""

    def __init__(
        self, outputs: int, inputs: int, group: int, scales: torch.dtype, zeros: bool, factor: float = 1.0
    ) -> None:
        generator = torch.Generator().manual_seed(1)
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
