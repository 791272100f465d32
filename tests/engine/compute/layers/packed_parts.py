"""Random modules of checkpoints, packed in every way that there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.compute.layers.linear import affine
from engine.compute.layers.linear.affine import AffineColumns
from engine.compute.layers.linear.base import LinearShape, Nested
from engine.compute.layers.linear.coded import word_count
from engine.compute.layers.linear.ggml import GgmlWeights
from engine.compute.layers.linear.ggml_blocks import BLOCKS, dequantise
from engine.formats.quantised.layouts import (
    AffineLayout,
    CodedLayout,
    Layout,
    RowsLayout,
    RowsPart,
    TableLayout,
    TablePart,
)
from tests.engine.compute.layers.affine_support import Affine
from tests.engine.compute.layers.ggml_support import rows_of

FP4 = (0.0, 0.0052, 0.6667, 1.0, 0.3333, 0.5, 0.1667, 0.25, -0.0, -0.0052, -0.6667, -1.0, -0.3333, -0.5, -0.1667, -0.25)

Packed = tuple[LinearShape, list[Any]]
"""A layer's shape and the modules that are fused in it."""


class CodedPart:
    """Random codes of any number of bits in groups (a CodedWeights)."""

    def __init__(
        self, bits: int, outputs: int, inputs: int, group: int, zeros: bool, order: bool, scales: torch.dtype
    ) -> None:
        generator = torch.Generator().manual_seed(inputs)
        self.bits, self.in_features, self.out_features, self.group_size = bits, inputs, outputs, group
        shape = (word_count(inputs, bits), outputs)
        self._words = torch.randint(-(1 << 31), 1 << 31, shape, dtype=torch.int32, generator=generator)
        groups = -(-inputs // group)
        self._scales = torch.rand(groups, outputs, generator=generator).to(scales)
        self._zeros = torch.full((groups, outputs), 1 << (bits - 1), dtype=torch.uint8)
        if zeros:
            self._zeros.random_(0, 1 << bits, generator=generator)
        shuffled = torch.randperm(inputs, generator=torch.Generator().manual_seed(7)) // group
        self.group_of = shuffled.int() if order else None

    def columns(self, start: int, stop: int) -> AffineColumns:
        return AffineColumns(*(values[:, start:stop] for values in (self._words, self._scales, self._zeros)))

    def weight(self) -> Tensor:
        """``[N, K]`` float32: code i is the bits from i * bits on of its column's words."""
        stream = np.unpackbits(self._words.t().contiguous().numpy().view(np.uint8), axis=1, bitorder="little")
        places = stream[:, : self.in_features * self.bits].reshape(self.out_features, -1, self.bits)
        codes = torch.from_numpy((places.astype(np.int64) << np.arange(self.bits)).sum(2)).t()
        runs = torch.arange(self.in_features) // self.group_size
        group = runs if self.group_of is None else self.group_of.long()
        return ((codes - self._zeros[group]) * self._scales[group].float()).t()


def table_part(outputs: int, inputs: int, block: int, nested: Nested | None = None) -> TablePart:
    generator = torch.Generator().manual_seed(outputs)
    blocks = -(-outputs * inputs // block)
    packed = torch.randint(0, 256, (outputs * inputs // 2,), dtype=torch.uint8, generator=generator)
    if nested is None:
        return TablePart(outputs, packed, torch.tensor(FP4), torch.rand(blocks, generator=generator))
    magnitudes = torch.randint(0, 256, (blocks,), dtype=torch.uint8, generator=generator)
    outer = torch.rand(-(-blocks // nested.size), generator=generator)
    table = torch.randn(256, generator=generator)
    return TablePart(outputs, packed, torch.tensor(FP4), magnitudes, outer, table)


def rows_part(outputs: int, inputs: int) -> RowsPart:
    generator = torch.Generator().manual_seed(outputs)
    codes = torch.randint(-128, 128, (outputs, inputs), dtype=torch.int8, generator=generator)
    return RowsPart(outputs, codes, torch.rand(outputs, generator=generator))


def definition(packed: Packed) -> Tensor:
    """``W [N, K]`` float32, from the codes."""
    shape, parts = packed
    return torch.cat([_weight(part, shape) for part in parts])


def _weight(part: Any, shape: LinearShape) -> Tensor:
    if isinstance(part, GgmlWeights):
        return dequantise(part.type, part.data)
    if isinstance(part, RowsPart):
        return part.codes.float() * part.largest[:, None] * (1 / 127)
    if not isinstance(part, TablePart):
        return part.weight()
    codes = torch.stack((part.packed >> 4, part.packed & 15), 1).flatten().long()
    sizes = part.absmax
    if shape.nested is not None:
        outer = part.nested_absmax[torch.arange(len(sizes)) // shape.nested.size]
        sizes = part.nested_table[sizes.long()] * outer + shape.nested.offset
    weight: Tensor = part.table[codes] * sizes.repeat_interleave(shape.group)[: len(codes)]
    return weight.view(part.out_features, -1)


def layout_of(shape: LinearShape) -> Layout | None:
    """What the headers of a file say; ggml's files have no layouts."""
    match shape.kind:
        case "int4":
            return AffineLayout(shape.in_features, shape.group, shape.scales, shape.symmetric, shape.ordered)
        case "coded" | "int8":
            groups = shape.in_features, shape.bits, shape.group, shape.scales
            return CodedLayout(*groups, shape.symmetric, shape.ordered)
        case "table4":
            alone = "" if shape.nested is None else "alone"
            return TableLayout(shape.in_features, shape.group, shape.table, shape.nested, alone)
        case "int8 rows":
            return RowsLayout(shape.in_features)
    return None


def int4(*parts: Affine) -> Packed:
    return affine.surveyed(parts), list(parts)


def coded(
    bits: int,
    outputs: int,
    inputs: int,
    group: int,
    zeros: bool = True,
    order: bool = False,
    scales: torch.dtype = torch.float16,
) -> Packed:
    parts = [CodedPart(bits, outputs, inputs, group, zeros, order, scales)]
    return CodedLayout(inputs, bits, group, scales, not zeros, order).surveyed(parts), parts


def table(outputs: int, inputs: int, block: int, nested: Nested | None = None) -> Packed:
    parts = [table_part(outputs, inputs, block, nested)]
    return TableLayout(inputs, block, FP4, nested, "").surveyed(parts), parts


def table_fused(outputs: tuple[int, ...], inputs: int, block: int) -> Packed:
    parts = [table_part(each, inputs, block) for each in outputs]
    return TableLayout(inputs, block, FP4, None, "").surveyed(parts), parts


def int8_rows(inputs: int, *outputs: int) -> Packed:
    parts = [rows_part(each, inputs) for each in outputs]
    return RowsLayout(inputs).surveyed(parts), parts


def ggml(type: int, outputs: int, inputs: int, scale: float | None = 0.01) -> Packed:
    """Also of Q4_0 the kind that keeps ggml's blocks."""
    part = GgmlWeights(type, rows_of(type, outputs, inputs, outputs, scale), inputs)
    return LinearShape("ggml", inputs, outputs, block_type=type), [part]


def _ggml(type: int) -> Callable[[], Packed]:
    return lambda: ggml(type, 77, 512)


CASES: dict[str, Callable[[], Packed]] = {
    "int4": lambda: int4(Affine(96, 64, 32)),
    "int4, symmetric": lambda: int4(Affine(200, 96, 16, 4, True)),
    "int4, long groups": lambda: int4(Affine(7, 512, 512)),
    "int4, one feature, ordered": lambda: int4(Affine(1, 64, 16, 4, order=True)),
    "int4, symmetric, ordered": lambda: int4(Affine(1100, 256, 128, 4, True, True)),
    "int4, fused": lambda: int4(Affine(96, 256, 64, 6), Affine(40, 256, 64, 7)),
    "int2": lambda: coded(2, 77, 96, 32),
    "int3": lambda: coded(3, 130, 320, 16, zeros=False),
    "int3, ordered": lambda: coded(3, 77, 256, 64, order=True),
    "int5": lambda: coded(5, 65, 288, 32),
    "int6": lambda: coded(6, 77, 160, 32),
    "int8": lambda: coded(8, 77, 96, 32, zeros=False),
    "int8, long groups of float32": lambda: coded(8, 128, 1024, 1024, scales=torch.float32),
    "int8, bfloat16": lambda: coded(8, 64, 128, 16, scales=torch.bfloat16),
    "int8, ordered": lambda: coded(8, 1025, 64, 16, zeros=False, order=True),
    "int8, ordered, zeros": lambda: coded(8, 77, 256, 64, order=True),
    "table, one feature": lambda: table(1, 32, 32),
    "table, odd features": lambda: table(77, 192, 64),
    "table, long blocks": lambda: table(130, 4096, 4096),
    "table, fused": lambda: table_fused((40, 100, 7), 128, 64),
    "table, nested": lambda: table(65, 320, 64, Nested(7, 0.25)),
    "table, nested in one": lambda: table(64, 256, 32, Nested(4096, -0.01)),
    "rows": lambda: int8_rows(96, 77),
    "rows, fused": lambda: int8_rows(896, 70, 3, 64),
} | {BLOCKS[type].name: _ggml(type) for type in BLOCKS}


SHORT: dict[str, Callable[[], Packed]] = {
    "int3, short": lambda: coded(3, 40, 96, 64, zeros=False),
    "int8, short": lambda: coded(8, 40, 96, 64, order=True),
    "table, short": lambda: table(40, 96, 4096),
}
"""The last group or block is not whole, which Kvasir's kernels do not serve."""


def cases(*beginnings: str) -> dict[str, dict[str, Callable[[], Packed]]]:
    """Those whose names begin so, as a kind registers them."""
    return {"make": {name: make for name, make in (CASES | SHORT).items() if name.startswith(beginnings)}}
