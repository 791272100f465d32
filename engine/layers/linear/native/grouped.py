"""4-bit codes of a table and 8-bit codes in Kvasir's native code (engine/native/grouped.h), on a CPU.

For few rows the weights are multiplied as they are, in float32 and never rounded; for many rows they are unpacked (in
bfloat16 rounded once) and torch multiplies. Sums are float32. Rows of the native product do not know each other, so it
is batch-invariant as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from engine.layers.linear.affine import CHUNK
from engine.layers.linear.base import LinearShape, Nested, Target
from engine.layers.linear.blocks import scratch
from engine.layers.linear.blockwise import BlockwiseLinear
from engine.layers.linear.coded import each
from engine.layers.linear.native.lanes import BLOCK, prepared, put
from engine.layers.linear.table import TableWeights
from engine.native.library import Grouped, Library, declines

FEW_ROWS = {torch.bfloat16: 24, torch.float32: 48}
"""Up to this many rows the native product is faster. Milliseconds of one AVX512-BF16 core, 2048 x 8192, at
1 / 4 / 8 / 16 / 24 / 32 / 64 rows in bfloat16: NF4 0.26 / 0.7 / 1.4 / 3.0 / 4.2 / 5.7 / 11.4, unpacked and multiplied
2.2 / 2.6 / 3.4 / 3.4 / 6.4 / 5.3 / 9.4; LLM.int8 0.4 / 0.7 / 1.7 / 3.4 / 4.5 / 5.9 / 11.2, unpacked 2.3 / 2.1 / 2.8 /
3.4 / 4.5 / 5.0 / 7.7. In float32 by AVX2 at 1 / 16 / 32 / 64: NF4 1.0 / 7.3 / 14 / 28 and 5.0 / 13 / 19 / 32;
LLM.int8 0.9 / 11 / 20 / 40 and 3.3 / 11 / 18 / 32."""
_SCALES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.uint8: 3}
_SIGN = -0x7F7F7F80
"""0x80808080 as int32: what makes four codes of 0..255 the same less 128."""


class NativeGroupedLinear(BlockwiseLinear):
    """``codes [N / 64, K / per word, 64]`` int32, ``scales [N / 64, K / group, 64]``, N rounded up to whole blocks."""

    block_weights, granule = 1 << 22, BLOCK
    zeros: Tensor | None = None
    table: Tensor | None = None
    nested_scales: Tensor | None = None
    nested_table: Tensor | None = None
    nested = Nested(1, 0.0)
    factor = 1.0
    held = ("codes", "scales", "zeros", "table", "nested_table", "nested_scales", "order")
    per_word: ClassVar[int]
    _library: Library

    def __init__(
        self, shape: LinearShape, target: Target, device: torch.device, scales: torch.dtype = torch.float32
    ) -> None:
        """``scales`` is the dtype that is held."""
        super().__init__(shape, target, device)
        self.group, self.order, self.few_rows = shape.group, shape.new_order(device), FEW_ROWS[target.dtype]
        blocks = -(-shape.out_features // BLOCK)
        self.codes = torch.empty(blocks, shape.in_features // self.per_word, BLOCK, dtype=torch.int32, device=device)
        self.scales = torch.zeros(blocks, shape.groups, BLOCK, dtype=scales, device=device)

    def finish(self) -> None:
        """The addresses of all tensors, none of which is replaced any more."""
        self._weights = Grouped(
            *(None if (tensor := getattr(self, name)) is None else tensor.data_ptr() for name in self.held[:6]),
            self.in_features,
            self.out_features,
            self.group,
            _SCALES[self.scales.dtype],
            *self.nested,
            self.factor,
        )

    def forward_float32(self, x: Tensor) -> Tensor:
        out = self._library.matmul(self._weights, self.ordered(x))
        return out if self.bias is None else out.add_(self.bias)

    def rows(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        first, last = start // BLOCK, -(-stop // BLOCK)
        weights = scratch.take("grouped", (self.in_features, (last - first) * BLOCK), dtype, self.device)
        self._library.grouped_write(self._weights, first, last, weights)
        return weights[:, : stop - start].t()


class NativeTableLinear(NativeGroupedLinear):
    """NF4 and FP4: see :class:`engine.layers.linear.table.TableLinear` for the weights' definition."""

    kind = "table4"
    path = "native 4-bit table matmul on CPU"
    per_word = 8

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        super().__init__(shape, target, device, torch.float32 if shape.nested is None else torch.uint8)
        self.table = torch.empty(16, device=device)
        if shape.nested is not None:
            self.nested = shape.nested
            self.nested_scales = torch.empty(-(-shape.out_features * shape.groups // self.nested.size), device=device)
            self.nested_table = torch.empty(256, device=device)

    def fill(self, parts: Sequence[TableWeights]) -> None:
        """Pack the parts, some output features at a time: one table, and a single part where blocks are nested."""
        self._library = prepared(self.codes)
        first = parts[0]
        assert self.table is not None
        self.table.copy_(first.table)
        for own, theirs in ((self.nested_scales, first.nested_absmax), (self.nested_table, first.nested_table)):
            if own is not None and theirs is not None:
                own.copy_(theirs)
        base = 0
        for part in parts:
            codes, scales = part.packed.view(part.out_features, -1), part.absmax.view(part.out_features, -1)
            for start in range(0, part.out_features, CHUNK):
                some = codes[start : start + CHUNK]
                # The first of two codes is the high one in the file and the low one here.
                words = ((some << 4) | (some >> 4)).view(torch.int32)
                put(words.t().contiguous(), self.codes, base + start)
                put(scales[start : start + CHUNK].t().contiguous(), self.scales, base + start)
            base += part.out_features
        self.finish()


def table_declines(shape: LinearShape, target: Target) -> str | None:
    """Why the native code does not serve a layer; None when it does."""
    if shape.in_features % shape.group:
        return f"its rows of {shape.in_features} are not whole blocks of {shape.group}"
    return declines(target.dtype, target.device)


class NativeInt8Linear(NativeGroupedLinear):
    """8-bit codes in groups: see :class:`engine.layers.linear.int8.Int8Linear` for the weights' definition."""

    kind = "int8"
    path = "native 8-bit matmul on CPU"
    per_word = 4

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        super().__init__(shape, target, device, shape.scales)
        if not shape.symmetric:
            self.zeros = torch.zeros(self.scales.shape, dtype=torch.int8, device=device)

    def fill(self, parts: Sequence[Any]) -> None:
        """Pack the parts (CodedWeights), which agree in groups and ``group_of``, some output features at a time."""
        self._library = prepared(self.codes)
        group_of = parts[0].group_of
        self.order = None if group_of is None else group_of.argsort(stable=True).to(torch.int32)
        for place, _, (words, scales, zeros) in each(parts):
            if self.order is not None:
                words = self._library.reordered(words, self.order, 8)
            put(words ^ _SIGN, self.codes, place.start)
            put(scales, self.scales, place.start)
            if self.zeros is not None:
                put((zeros ^ 128).view(torch.int8), self.zeros, place.start)
        self.finish()


def int8_declines(shape: LinearShape, target: Target) -> str | None:
    """Why the native code does not serve a layer of groups or of rows; None when it does."""
    if shape.group % 4 or shape.in_features % shape.group:
        return f"it has no groups of {shape.group} over {shape.in_features} input features"
    if shape.scales not in _SCALES:
        return f"the scales are {str(shape.scales).removeprefix('torch.')}"
    if not shape.even:
        return f"its groups are not of {shape.group} input features each"
    return declines(target.dtype, target.device)


class NativeInt8RowsLinear(NativeInt8Linear):
    """LLM.int8: one scale a row, of which a 127th counts."""

    factor = 1 / 127

    def fill(self, parts: Sequence[Any]) -> None:
        """Pack parts (Int8Rows) whose codes are in rows, some output features at a time."""
        self._library = prepared(self.codes)
        base = 0
        for part in parts:
            for start in range(0, part.out_features, CHUNK):
                words = part.codes[start : start + CHUNK].contiguous().view(torch.int32)
                put(words.t().contiguous(), self.codes, base + start)
                put(part.largest[None, start : start + CHUNK], self.scales, base + start)
            base += part.out_features
        self.finish()
