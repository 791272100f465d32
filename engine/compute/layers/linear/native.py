"""Packed weights of every kind in Kvasir's native code (engine/compute/native/products.h), on a CPU.

Activations are quantised for the product, as `engine.compute.layers.numerics.Numerics.activations` says, and weights
are multiplied as they are, never rounded. Rows do not know each other, so the path is batch-invariant as it stands.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.base.host_memory import WEIGHTS
from engine.compute.layers.linear import ggml_codebooks
from engine.compute.layers.linear.affine import CHUNK, PER_WORD, AffineWeights, chunks
from engine.compute.layers.linear.base import LinearShape, PackedLinear, Surroundings, Target
from engine.compute.layers.linear.coded import CodedWeights, each
from engine.compute.layers.linear.ggml import GgmlWeights
from engine.compute.layers.linear.ggml_blocks import (
    BLOCKS,
    CODEBOOKS,
    IQ1_M,
    IQ1_S,
    IQ2_S,
    IQ2_XS,
    IQ2_XXS,
    IQ3_S,
    IQ3_XXS,
    IQ4_NL,
    IQ4_VALUES,
    IQ4_XS,
    MXFP4,
    MXFP4_VALUES,
    Q2_K,
    Q3_K,
    Q4_0,
    Q4_1,
    Q4_K,
    Q5_0,
    Q5_1,
    Q5_K,
    Q6_K,
    Q8_0,
    TQ1_0,
    TQ2_0,
)
from engine.compute.layers.linear.int8 import Int8Rows
from engine.compute.layers.linear.table import TableWeights
from engine.compute.native.library import NativeLibrary, WeightLanes, declines, loaded

PATH = "native product on CPU"
BLOCK = 64
"""Output features whose codes lie side by side, each a lane of a vector."""
UNIT = 32
"""Input features that are taken at a time."""
SUPER = 256
"""Input features with one outer scale, where scales are products of two."""
_U2, _U3, _U4, _U5, _U6, _SIGNED8, _TABLE4 = range(7)
_PLANES = {_U2: (2, 0), _U3: (2, 1), _U4: (4, 0), _U5: (4, 1), _U6: (4, 2), _SIGNED8: (8, 0), _TABLE4: (4, 0)}
"""Bits of a code in the two planes."""
_UNSIGNED = {2: _U2, 3: _U3, 4: _U4, 5: _U5, 6: _U6}
_NUMBERS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
_NESTED, _EXPONENTS, _PRODUCTS, _NIBBLES, _BOOK = 3, 4, 5, 6, 7
"""Storage formats of scales that are not numbers (products.h)."""
_SIGN = 0x80
_DIGITS = {8: 1, 16: 2, 32: 3}
FEW_ROWS = 8
"""Rows that wait for weights and not for arithmetic: where some spans of an input get 16 bits, theirs all do."""
WITH_PRODUCTS = ("silu", "gelu_tanh")
"""Gatings that a product of many rows computes with it: those without settings of their own."""
_NEXT_DIGIT = 254


class _StorageForm(NamedTuple):
    """Storage layout of a kind."""

    codes: int
    group: int
    scales: torch.dtype = torch.float16
    scale_type: int | None = None
    """None: by the dtype."""
    zeros: bool = False
    """Zero-points; of products, minima."""
    supers: bool = False
    shifts: bool = False
    words: int = 0
    """Words of a block of 256 weights, where blocks are held as the file has them (books.h)."""


class NativeLinear(PackedLinear):
    """Codes in planes ``[N / 64, K bits / 32, 64]`` int32, scales ``[N / 64, K / group, 64]``, zeros alike and others.

    N is rounded up to whole blocks of 64, whose last features are all zero. A kind says in what form it is held
    (:meth:`form`) and packs it (:meth:`put`).
    """

    path = PATH
    float32_is_free = True
    held = ("codes", "high", "scales", "zeros", "supers", "least", "shifts", "nested_table", "nested_scales", "order")
    kind = "int4"
    factor = 1.0
    nested_table: Tensor | None = None
    nested_scales: Tensor | None = None
    refined: Tensor | None = None
    """``[in_features / 32]`` uint8, for the spans of an input in packed order: 1 where activations of 8 bits get 16, if
    the numeric modes refine them. All do in a product of a few rows, and in batch-invariant mode."""

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        super().__init__(shape, target, device)
        self._form = form = self.form(shape)
        self.order = shape.new_order(device)
        self._blocks = -(-shape.out_features // BLOCK)
        low, high = _PLANES[form.codes]
        words = shape.in_features // SUPER * form.words or shape.in_features // UNIT * low
        self.codes = self._new(words, torch.int32)
        self.high = self._new(shape.in_features // UNIT * high, torch.int32) if high else None
        self.block_type = shape.block_type
        groups, outer = 0 if form.words else shape.in_features // form.group, -(-shape.in_features // SUPER)
        self.scales = self._new(groups, form.scales)
        self.zeros = self._new(groups, torch.uint8) if form.zeros else None
        self.supers = self._new(outer, torch.float16) if form.supers else None
        self.least = (
            self._new(outer, torch.float16) if form.supers and (form.zeros or form.scale_type == _NIBBLES) else None
        )
        self.shifts = self._new(groups, torch.float16) if form.shifts else None
        self._nested = shape.nested
        if shape.nested is not None:
            magnitudes = shape.out_features * shape.groups
            self.nested_scales = torch.empty(-(-magnitudes // shape.nested.size), device=device)
            self.nested_table = torch.empty(256, device=device)

    def _new(self, rows: int, dtype: torch.dtype) -> Tensor:
        shape = (self._blocks, rows, BLOCK)
        return (
            WEIGHTS.empty(shape, dtype)
            if self.device.type == "cpu"
            else torch.empty(shape, dtype=dtype, device=self.device)
        )

    @staticmethod
    def form(shape: LinearShape) -> _StorageForm:
        raise NotImplementedError

    def put(self, library: NativeLibrary, parts: Sequence[Any]) -> None:
        """Pack the parts, some output features at a time."""
        raise NotImplementedError

    def fill(self, parts: Sequence[Any]) -> None:
        self._library = library = loaded()
        form, table = self._form, self.table(parts)
        for tensor in (self.codes, self.high, self.scales, self.zeros, self.supers, self.least, self.shifts):
            if tensor is not None:
                tensor[-1].zero_()
        self._book = book = self.book()
        tensors = (*(getattr(self, name) for name in self.held[:-1]), book)
        addresses = (None if each is None else each.data_ptr() for each in tensors)
        values, largest = table.tolist(), float(table.abs().max())
        whole = bool((table == table.round()).all()) and largest <= 127
        digits = table if whole else table * (127 / largest)
        tables = (ctypes.c_int8 * 16 * 3)()
        for whole_numbers in tables:
            whole_numbers[:] = digits.round().int().tolist()
            digits = (digits - digits.round()) * _NEXT_DIGIT
        self._weights = WeightLanes(
            *addresses,
            self.in_features,
            self.out_features,
            form.group,
            form.codes,
            _NUMBERS[form.scales] if form.scale_type is None else form.scale_type,
            self._nested.size if self._nested else 1,
            self.block_type if form.words else 0,
            self._nested.offset if self._nested else 0.0,
            self.factor,
            (ctypes.c_float * 16)(*values),
            1.0 if whole else largest / 127,
            1 if whole else 3,
            tables,
        )
        self.put(library, parts)

    def table(self, parts: Sequence[Any]) -> Tensor:
        """``[16]`` float64: what codes stand for that are looked up."""
        return torch.zeros(16, dtype=torch.float64)

    def book(self) -> Tensor | None:
        """Entries of a codebook, int32: eight codes of 4 bits each."""
        return None

    def forward(self, x: Tensor) -> Tensor:
        return self._product(x, x.dtype)

    def forward_float32(self, x: Tensor) -> Tensor:
        return self._product(x, torch.float32)

    @property
    def weights(self) -> WeightLanes:
        """What native code is given of the layer, once it is filled."""
        return self._weights

    @property
    def few_digits(self) -> int:
        """Digits of the activations of a few rows."""
        digits = _DIGITS[self.numerics.activations]
        return 2 if digits == 1 and self.numerics.refines and self.refined is not None else digits

    def forward_within(self, x: Tensor, around: Surroundings) -> Tensor | None:
        return None if self.declines_within(x, around) is not None else self._product(x, x.dtype, around.gating)

    def declines_within(self, x: Tensor, around: Surroundings) -> str | None:
        if around != Surroundings(gating=around.gating) or around.gating not in WITH_PRODUCTS:
            return "on a processor only gates are computed with a product"
        if len(x) <= FEW_ROWS:
            return "few rows wait for weights, which are read in their order"
        if self.bias is not None or self.out_features % (2 * BLOCK):
            return f"gates are computed with blocks of {BLOCK} features without a bias"
        return None

    def _product(self, x: Tensor, dtype: torch.dtype, gating: str = "") -> Tensor:
        numerics, x = self.numerics, self.ordered(x)
        if numerics.observer is not None:
            numerics.observer(self, x)
        digits, refined = self.few_digits, None
        if len(x) > FEW_ROWS and numerics.refines and not numerics.batch_invariant:
            digits = _DIGITS[numerics.activations]
            refined = self.refined if digits == 1 else None
        out = self._library.matmul(self._weights, x, digits, dtype, refined, gating)
        return out if self.bias is None else out.add_(self.bias)

    def rows(self, features: Tensor, dtype: torch.dtype) -> Tensor:
        """``W [n, K]``, new, of output features ``features [n]`` int64, in the packed order."""
        out = torch.empty(len(features), self.in_features, dtype=dtype)
        self._library.write(self._weights, features.contiguous(), out)
        return out

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        rounded = dtype if dtype in (torch.float32, torch.bfloat16) else torch.float32
        weight = self.rows(torch.arange(self.out_features), rounded).to(dtype)
        return weight if self.order is None else weight.index_select(1, self.order.argsort())


def put(values: Tensor, packed: Tensor, start: int) -> None:
    """``values [rows, n]`` of the features from ``start`` on into ``packed [blocks, rows, 64]``."""
    first, lane = divmod(start, BLOCK)
    if lane:
        head = min(BLOCK - lane, values.shape[1])
        packed[first, :, lane : lane + head] = values[:, :head]
        values, first = values[:, head:], first + 1
    whole, rest = divmod(values.shape[1], BLOCK)
    blocks = values[:, : whole * BLOCK].view(values.shape[0], whole, BLOCK)
    packed[first : first + whole] = blocks.transpose(0, 1)
    if rest:
        packed[first + whole, :, :rest] = values[:, whole * BLOCK :]


def native_declines(shape: LinearShape, target: Target) -> str | None:
    """Reason the native code does not serve a layer; None when it does."""
    if reason := declines(target.dtype, target.device):
        return reason
    if shape.in_features % UNIT:
        return f"its {shape.in_features} input features are not a multiple of {UNIT}"
    if not shape.even or shape.group % (UNIT // 2) or shape.in_features % shape.group:
        return f"it has no even groups of {shape.group} over {shape.in_features} input features"
    if shape.scales not in _NUMBERS:
        return f"the scales are {str(shape.scales).removeprefix('torch.')}"
    return None


class NativeInt4Linear(NativeLinear):
    """Affine weights of 4 bits: see :mod:`engine.compute.layers.linear.affine`."""

    @staticmethod
    def form(shape: LinearShape) -> _StorageForm:
        return _StorageForm(_U4, shape.group, shape.scales, zeros=not shape.symmetric)

    def put(self, library: NativeLibrary, parts: Sequence[AffineWeights]) -> None:
        self.order = None if parts[0].order is None else parts[0].order.to(torch.int32)
        for start, (words, scales, zeros) in chunks(parts):
            library.put_words(self._weights, words, 32 // PER_WORD, start, self.order)
            put(scales, self.scales, start)
            if self.zeros is not None:
                put(zeros, self.zeros, start)


class NativeCodedLinear(NativeLinear):
    """Groups of codes of 2, 3, 5, 6 or 8 bits: see :mod:`engine.compute.layers.linear.coded`."""

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        super().__init__(shape, target, device)
        self.kind, self.bits = f"int{shape.bits}", shape.bits

    @staticmethod
    def form(shape: LinearShape) -> _StorageForm:
        codes = _SIGNED8 if shape.bits == 8 else _UNSIGNED[shape.bits]
        return _StorageForm(codes, shape.group, shape.scales, zeros=not shape.symmetric)

    def put(self, library: NativeLibrary, parts: Sequence[CodedWeights]) -> None:
        group_of, flip = parts[0].group_of, _SIGN if self.bits == 8 else 0
        self.order = None if group_of is None else group_of.argsort(stable=True).to(torch.int32)
        for place, _, (words, scales, zeros) in each(parts):
            library.put_words(self._weights, words, self.bits, place.start, self.order, flip)
            put(scales, self.scales, place.start)
            if self.zeros is not None:
                put(zeros ^ flip, self.zeros, place.start)


def coded_declines(shape: LinearShape, target: Target) -> str | None:
    """Reason the native code does not serve groups of codes; None when it does."""
    if shape.bits != 8 and shape.bits not in _UNSIGNED:
        return f"the weights have {shape.bits} bits"
    if shape.bits == 5 and shape.group % UNIT:
        return f"its groups of {shape.group} are not a multiple of {UNIT}"
    return native_declines(shape, target)


class NativeInt8RowsLinear(NativeLinear):
    """LLM.int8: one scale a row, of which a 127th counts."""

    kind = "int8"
    factor = 1 / 127

    @staticmethod
    def form(shape: LinearShape) -> _StorageForm:
        return _StorageForm(_SIGNED8, shape.in_features, torch.float32)

    def put(self, library: NativeLibrary, parts: Sequence[Int8Rows]) -> None:
        base = 0
        for part in parts:
            for start in range(0, part.out_features, CHUNK):
                words = part.codes[start : start + CHUNK].contiguous().view(torch.int32)
                library.put_words(self._weights, words.t().contiguous(), 8, base + start, None)
                put(part.largest[None, start : start + CHUNK], self.scales, base + start)
            base += part.out_features


class NativeTableLinear(NativeLinear):
    """NF4 and FP4: see :class:`engine.compute.layers.linear.table.TableLinear` for the weights' definition."""

    kind = "table4"

    @staticmethod
    def form(shape: LinearShape) -> _StorageForm:
        if shape.nested is None:
            return _StorageForm(_TABLE4, shape.group, torch.float32)
        return _StorageForm(_TABLE4, shape.group, torch.uint8, _NESTED)

    def table(self, parts: Sequence[TableWeights]) -> Tensor:
        return parts[0].table.double()

    def put(self, library: NativeLibrary, parts: Sequence[TableWeights]) -> None:
        first = parts[0]
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
                library.put_words(self._weights, words.t().contiguous(), 4, base + start, None)
                put(scales[start : start + CHUNK].t().contiguous(), self.scales, base + start)
            base += part.out_features


_HALVES = {Q4_0: _U4, Q4_1: _U4, Q5_0: _U5, Q5_1: _U5, Q8_0: _SIGNED8, IQ4_NL: _TABLE4}
_GGML = {type: _StorageForm(codes, UNIT, shifts=type in (Q4_1, Q5_1)) for type, codes in _HALVES.items()} | {
    MXFP4: _StorageForm(_TABLE4, UNIT, torch.uint8, _EXPONENTS),
    IQ4_XS: _StorageForm(_TABLE4, UNIT, torch.uint8, _PRODUCTS, supers=True),
    Q2_K: _StorageForm(_U2, 16, torch.uint8, _NIBBLES, supers=True),
    Q3_K: _StorageForm(_U3, 16, torch.uint8, _PRODUCTS, supers=True),
    Q4_K: _StorageForm(_U4, UNIT, torch.uint8, _PRODUCTS, zeros=True, supers=True),
    Q5_K: _StorageForm(_U5, UNIT, torch.uint8, _PRODUCTS, zeros=True, supers=True),
    Q6_K: _StorageForm(_U6, 16, torch.uint8, _PRODUCTS, supers=True),
    TQ2_0: _StorageForm(_U2, SUPER, zeros=True),
}


class _Codebook(NamedTuple):
    """A type whose blocks are held as they are: of ``words`` and a float16, with a scale for ``group`` weights.

    Codes of four bits mean ``share`` of a table: a level of the codebook, the lower eight as it is, the upper ones
    negative, or in IQ1 one more and one less.
    """

    words: int
    group: int
    share: float


_BOOKS = {
    IQ2_XXS: _Codebook(16, 32, 1 / 8),
    IQ2_XS: _Codebook(18, 16, 1 / 8),
    IQ2_S: _Codebook(20, 16, 1 / 8),
    IQ3_XXS: _Codebook(24, 32, 1 / 4),
    IQ3_S: _Codebook(27, 32, 1.0),
    IQ1_S: _Codebook(12, 32, 1 / 8),
    IQ1_M: _Codebook(14, 16, 1 / 8),
    TQ1_0: _Codebook(13, SUPER, 1.0),
}
_GGML |= {
    type: _StorageForm(_TABLE4, each.group, torch.uint8, _BOOK, supers=True, words=each.words)
    for type, each in _BOOKS.items()
}
_TABLES = {IQ4_NL: IQ4_VALUES, IQ4_XS: IQ4_VALUES, MXFP4: MXFP4_VALUES, TQ1_0: (-1, 0, 1)}


class NativeGgmlLinear(NativeLinear):
    """ggml's blocks: see :mod:`engine.compute.layers.linear.ggml_blocks`."""

    def __init__(self, shape: LinearShape, target: Target, device: torch.device) -> None:
        super().__init__(shape, target, device)
        self.kind = BLOCKS[shape.block_type].name
        self.factor = _BOOKS[shape.block_type].share if shape.block_type in _BOOKS else 1.0

    @staticmethod
    def form(shape: LinearShape) -> _StorageForm:
        return _GGML[shape.block_type]

    def table(self, parts: Sequence[GgmlWeights]) -> Tensor:
        values = _TABLES.get(self.block_type, ())
        if self.block_type in CODEBOOKS:
            entry = ggml_codebooks.levels(CODEBOOKS[self.block_type])
            first, second = entry, tuple(-level for level in entry)
            if self.block_type in (IQ1_S, IQ1_M):
                first, second = (tuple(level + shift for level in entry) for shift in (1, -1))
            values = (*first, *(0,) * (8 - len(first)), *second)
        return torch.tensor((*values, *(0,) * (16 - len(values))), dtype=torch.float64)

    def book(self) -> Tensor | None:
        name = CODEBOOKS.get(self.block_type)
        return None if name is None else _entries(name)

    def put(self, library: NativeLibrary, parts: Sequence[GgmlWeights]) -> None:
        start = 0
        for part in parts:
            library.put_ggml(self._weights, part.type, part.data, start)
            start += len(part.data)


@functools.cache
def _entries(name: str) -> Tensor:
    """A codebook's entries as products.h has eight codes of 4 bits, or four in the lower halves of bytes: int32."""
    with torch.inference_mode(False):
        entries = ggml_codebooks.digits(name)
        places = torch.tensor([0, 8, 16, 24, 4, 12, 20, 28])[: entries.shape[1]]
        return (entries << places).sum(1).to(torch.int32)


def ggml_declines(shape: LinearShape, target: Target) -> str | None:
    """Reason the native code does not serve ggml's blocks, which are of 32 weights or more; None when it does."""
    return declines(target.dtype, target.device)
