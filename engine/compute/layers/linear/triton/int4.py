"""Group-affine 4-bit weights on a GPU, by Kvasir's own Triton kernels."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.compute.layers.linear.affine import (
    AffineColumns,
    AffineWeights,
    chunks,
    dequantise,
    pack_codes,
    unpack_words,
)
from engine.compute.layers.linear.base import LinearShape, Target
from engine.compute.layers.linear.triton.plane_layer import Form, PlaneLinear, plane_of
from engine.compute.layers.linear.triton.trial import disagrees
from engine.compute.native.gpu import TURING
from engine.compute.native.proof import machine_declines

_NAMES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}


class TritonInt4Linear(PlaneLinear):
    """``scales`` as in the file, ``offsets`` the zero-points (uint8), None where all are 8."""

    kind = "int4"

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        plane = plane_of(shape.in_features, shape.group)
        assert plane is not None, "see triton_declines"
        form = Form(plane, _NAMES[shape.scales], "eight" if shape.symmetric else "zeros")
        super().__init__(form, shape, target, device, shape.scales, None if shape.symmetric else torch.uint8)

    def fill(self, parts: Sequence[AffineWeights]) -> None:
        order = parts[0].order
        self.order = None if order is None else order.to(self.device, torch.int32)
        for start, columns in chunks(parts):
            self.put_codes(unpack_words(columns.words.to(self.device), self.order).t(), start)
            self.put_groups(columns.scales.t(), self.scales, start)
            if self.offsets is not None:
                self.put_groups(columns.zeros.t(), self.offsets, start)


def triton_declines(shape: LinearShape, target: Target) -> str | None:
    """Reason the kernels do not serve a layer; None when they do, as a trial on this device has shown."""
    plane = plane_of(shape.in_features, shape.group)
    if plane is None or shape.in_features % shape.group:
        return f"it has no groups of {shape.group} over {shape.in_features} input features"
    padded = shape.in_features % (4 * plane) != 0
    return _disagrees(plane, padded, shape.scales, shape.symmetric, target.dtype, target.device)


def try_kernels(dtype: torch.dtype, device: torch.device) -> str | None:
    """Reason the commonest 4-bit layer, of groups of 128, would not be served on a device; None where it would."""
    return machine_declines(dtype, device, TURING) or _disagrees(128, False, torch.float16, True, dtype, device)


@functools.cache
def _disagrees(
    plane: int, padded: bool, scales: torch.dtype, symmetric: bool, dtype: torch.dtype, device: torch.device
) -> str | None:
    part = Int4Sample(72, plane * (20 + padded), plane, scales, symmetric)
    what = "int4", plane, padded, scales, symmetric
    return disagrees(what, part.layer, part.weight, dtype, device)


class Int4Sample:
    """Random group-affine weights, to try a kernel with."""

    order: Tensor | None = None

    def __init__(self, outputs: int, inputs: int, group: int, scales: torch.dtype, symmetric: bool) -> None:
        self.shape = LinearShape("int4", inputs, outputs, group=group, scales=scales, symmetric=symmetric)
        generator = torch.Generator().manual_seed(1)
        self.in_features, self.out_features, self.group = inputs, outputs, group
        codes = torch.randint(0, 16, (inputs, outputs), dtype=torch.uint8, generator=generator)
        shape = (inputs // group, outputs)
        zeros = torch.full(shape, 8) if symmetric else torch.randint(0, 16, shape, generator=generator)
        spread = torch.rand(shape, generator=generator) * 0.02 + 0.005
        self._columns = AffineColumns(pack_codes(codes), spread.to(scales), zeros.to(torch.uint8))

    def layer(self, target: Target) -> TritonInt4Linear:
        made = TritonInt4Linear(self.shape, target, target.device)
        made.fill([self])
        return made

    def columns(self, start: int, stop: int) -> AffineColumns:
        return AffineColumns(*(values[:, start:stop] for values in self._columns))

    def weight(self) -> Tensor:
        """``[N, K]`` float32 by the definition."""
        return dequantise(self._columns, self.group, None).t()
