"""NF4 and FP4 on a GPU, by Kvasir's own Triton kernels."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.layers.linear.blockwise import BlockwiseLinear
from engine.layers.linear.table import Nested, TableLinear, TableWeights
from engine.layers.linear.triton.plane_layer import Form, PlaneLinear, plane_of
from engine.layers.linear.triton.runtime import Trial, disagrees, machine_declines
from engine.layers.numerics import Numerics

CHUNK = 1024
"""Output features packed at a time."""


class TritonTableLinear(PlaneLinear):
    """``scales``: the blocks' magnitudes, float32, or uint8 beside what they look up (``codebook``, ``outer``)."""

    kind = "table4"

    def __init__(
        self,
        parts: Sequence[TableWeights],
        in_features: int,
        block: int,
        nested: Nested | None,
        dtype: torch.dtype,
        device: torch.device,
        numerics: Numerics,
    ) -> None:
        """Parts with whole blocks to a row and one table; a single part where the magnitudes are packed themselves."""
        first = parts[0]
        plane = plane_of(in_features, block)
        assert plane is not None, "see triton_declines"
        table = tuple(first.table.float().tolist())
        form = Form(plane, "float32" if nested is None else "nested", "none", table)
        if nested is not None:
            form = form._replace(outer=nested.size, block=block)
        scales = torch.float32 if nested is None else torch.uint8
        outputs = sum(part.out_features for part in parts)
        super().__init__(form, in_features, outputs, dtype, device, numerics, scales, None)
        if nested is not None:
            assert first.nested_absmax is not None
            assert first.nested_table is not None
            self.outer, self.codebook = first.nested_absmax.float().to(device), first.nested_table.float().to(device)
            self.shift = nested.offset
        base = 0
        for part in parts:
            packed = part.packed.view(part.out_features, -1)
            self.put_groups(part.absmax.view(part.out_features, -1), self.scales, base)
            for start in range(0, part.out_features, CHUNK):
                pairs = packed[start : start + CHUNK].to(device)
                # The first of two codes is in the high nibble.
                self.put_codes(torch.stack((pairs >> 4, pairs & 15), -1).flatten(1), base + start)
            base += part.out_features


def triton_declines(in_features: int, block: int, nested: bool, dtype: torch.dtype, device: torch.device) -> str | None:
    """Why the kernels do not serve a layer; None when they do, which they have then proved on this device."""
    reason = machine_declines(dtype, device)
    if reason is not None:
        return reason
    if in_features % block:
        return f"blocks of {block} cross the ends of rows of {in_features}"
    plane = plane_of(in_features, block)
    if plane is None:
        return f"it has no blocks of {block}"
    return _disagrees(plane, in_features % (4 * plane) != 0, nested, dtype, device)


@functools.cache
def _disagrees(plane: int, padded: bool, nested: bool, dtype: torch.dtype, device: torch.device) -> str | None:
    sample = Sample(72, plane * (20 + padded), plane, Nested(16, 0.03) if nested else None)

    def trial() -> Trial:
        made = {invariant: sample.layer(dtype, device, Numerics(invariant)) for invariant in (False, True)}

        def multiply(x: Tensor, fixed: bool) -> Tensor:
            return made[True].forward_float32(x) if fixed else made[False].forward(x)

        return Trial(multiply, made[False].dequantised(torch.float32), sample.weight())

    return disagrees(trial, dtype, device)


class Sample:
    """Random weights of this kind, to try a kernel with."""

    def __init__(self, outputs: int, inputs: int, block: int, nested: Nested | None, seed: int = 1) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.in_features, self.out_features, self.block, self.nested = inputs, outputs, block, nested
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

    def layer(self, dtype: torch.dtype, device: torch.device, numerics: Numerics) -> TritonTableLinear:
        return TritonTableLinear([self], self.in_features, self.block, self.nested, dtype, device, numerics)

    def weight(self) -> Tensor:
        """``[N, K]`` float32 by the definition."""
        layer: BlockwiseLinear = TableLinear(
            self.in_features, self.out_features, self.block, self.nested, torch.device("cpu"), Numerics()
        )
        layer.fill([self])
        return layer.dequantised(torch.float32)
