"""NF4 and FP4 on a GPU, by Kvasir's own Triton kernels."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.compute.layers.linear.base import LinearShape, Nested, Target
from engine.compute.layers.linear.table import TableLinear, TableWeights
from engine.compute.layers.linear.triton.plane_layer import Form, PlaneLinear, plane_of
from engine.compute.layers.linear.triton.trial import disagrees
from engine.compute.layers.numerics import Numerics

CHUNK = 1024
"""Output features packed at a time."""


class TritonTableLinear(PlaneLinear):
    """``scales``: the blocks' magnitudes, float32, or uint8 codes that index ``codebook``, scaled by ``outer``."""

    kind = "table4"

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        plane, nested = plane_of(shape.in_features, shape.group), shape.nested
        assert plane is not None, "see triton_declines"
        form = Form(plane, "float32" if nested is None else "nested", "none", shape.table)
        if nested is not None:
            form = form._replace(outer=nested.size, block=shape.group)
        super().__init__(form, shape, target, device, torch.float32 if nested is None else torch.uint8, None)
        if nested is not None:
            self.outer = torch.empty(-(-shape.out_features * shape.groups // nested.size), device=device)
            self.codebook, self.shift = torch.empty(256, device=device), nested.offset

    def fill(self, parts: Sequence[TableWeights]) -> None:
        """Pack parts with whole blocks to a row and one table; a single part where the magnitudes are packed."""
        for own, theirs in ((self.outer, parts[0].nested_absmax), (self.codebook, parts[0].nested_table)):
            if own is not None and theirs is not None:
                own.copy_(theirs)
        base = 0
        for part in parts:
            packed = part.packed.view(part.out_features, -1)
            self.put_groups(part.absmax.view(part.out_features, -1), self.scales, base)
            for start in range(0, part.out_features, CHUNK):
                pairs = packed[start : start + CHUNK].to(self.device)
                # The first of two codes is in the high nibble.
                self.put_codes(torch.stack((pairs >> 4, pairs & 15), -1).flatten(1), base + start)
            base += part.out_features


def triton_declines(shape: LinearShape, target: Target) -> str | None:
    """Reason the kernels do not serve a layer; None when they do, as a trial on this device has shown."""
    if shape.in_features % shape.group:
        return f"blocks of {shape.group} cross the ends of rows of {shape.in_features}"
    plane = plane_of(shape.in_features, shape.group)
    if plane is None:
        return f"it has no blocks of {shape.group}"
    padded = shape.in_features % (4 * plane) != 0
    return _disagrees(plane, padded, shape.nested is not None, target.dtype, target.device)


@functools.cache
def _disagrees(plane: int, padded: bool, nested: bool, dtype: torch.dtype, device: torch.device) -> str | None:
    sample = TableSample(72, plane * (20 + padded), plane, Nested(16, 0.03) if nested else None)
    return disagrees(("table", plane, padded, nested), sample.layer, sample.weight, dtype, device)


class TableSample:
    """Random weights of this kind, to try a kernel with."""

    def __init__(self, outputs: int, inputs: int, block: int, nested: Nested | None) -> None:
        generator = torch.Generator().manual_seed(1)
        self.out_features = outputs
        self.packed = torch.randint(0, 256, (outputs * inputs // 2,), dtype=torch.uint8, generator=generator)
        self.table = torch.randn(16, generator=generator).sort().values
        blocks = outputs * inputs // block
        self.absmax = torch.rand(blocks, generator=generator) * 0.05 + 0.01
        self.nested_absmax: Tensor | None = None
        self.nested_table: Tensor | None = None
        if nested is not None:
            self.absmax = torch.randint(0, 256, (blocks,), dtype=torch.uint8, generator=generator)
            self.nested_absmax = torch.rand(-(-blocks // nested.size), generator=generator) * 0.05
            self.nested_table = torch.randn(256, generator=generator)
        table = tuple(self.table.tolist())
        self.shape = LinearShape("table4", inputs, outputs, group=block, table=table, nested=nested)

    def layer(self, target: Target) -> TritonTableLinear:
        made = TritonTableLinear(self.shape, target, target.device)
        made.fill([self])
        return made

    def weight(self) -> Tensor:
        """``[N, K]`` float32 by the definition."""
        cpu = torch.device("cpu")
        layer = TableLinear(self.shape, Target(torch.float32, cpu, Numerics()), cpu)
        layer.fill([self])
        return layer.dequantised(torch.float32)
