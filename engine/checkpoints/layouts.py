"""What a packed module becomes: the kind of linear layer, its sizes, and whether neighbours fuse with it.

A layout follows from the configuration and the headers alone, so the same one plans a layer and loads it. Modules
that read the same input become one layer where their layouts are equal.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from engine.layers.linear import int4
from engine.layers.linear.affine import AffineWeights
from engine.layers.linear.base import Declined, Linear
from engine.layers.linear.blockwise import BlockwiseLinear
from engine.layers.linear.coded import CodedLinear, CodedWeights
from engine.layers.linear.grouped_native import (
    NativeGroupedLinear,
    NativeInt8Linear,
    NativeInt8RowsLinear,
    NativeTableLinear,
)
from engine.layers.linear.int8 import Int8Linear, Int8RowsLinear
from engine.layers.linear.table import Nested, TableLinear
from engine.layers.linear.triton import int8 as triton_int8
from engine.layers.linear.triton import table as triton_table
from engine.layers.linear.triton.runtime import PATH
from engine.layers.numerics import Numerics


class Target(NamedTuple):
    """What layers are made for. ``native`` admits Kvasir's own kernels."""

    dtype: torch.dtype
    device: torch.device
    numerics: Numerics
    native: bool = True


class Layout(Protocol):
    """Compared by value. ``parts`` are what :attr:`Packed.read` gave for modules of this layout."""

    def planned(self, out_features: int, bias: Tensor | None, target: Target) -> Linear:
        """The layer on device "meta"."""

    def fuses(self, parts: Sequence[Any]) -> bool:
        """Whether modules that the headers let fuse do so by their contents too (their order of input features)."""

    def built(self, parts: Sequence[Any], bias: Tensor | None, target: Target) -> Linear:
        """The layer, filled."""

    def write(self, part: Any, out: Tensor) -> None:
        """Write the ``W [N, K]`` that a module stands for into ``out``, exact but for the rounding to its dtype."""


@dataclass(frozen=True)
class Packed:
    """One packed module, checked against the headers. ``read()`` gives the part that ``layout`` asks for."""

    layout: Layout
    read: Callable[[], Any]


@dataclass(frozen=True)
class AffineLayout:
    """4-bit codes in groups (:class:`AffineWeights`). ``ordered``: groups are not runs of input features."""

    in_features: int
    group: int
    scales: torch.dtype
    symmetric: bool
    ordered: bool = False

    def planned(self, out_features: int, bias: Tensor | None, target: Target) -> Linear:
        layer, _ = int4.empty(
            self.in_features,
            out_features,
            self.group,
            self.scales,
            target.dtype,
            target.device,
            target.numerics,
            native=target.native,
            symmetric=self.symmetric,
        )
        layer.bias = bias
        if self.ordered:
            layer.order = torch.empty(self.in_features, dtype=torch.int32, device=target.device)
        return layer

    def fuses(self, parts: Sequence[AffineWeights]) -> bool:
        first = parts[0]
        return all(part.group == first.group and _same(part.order, first.order) for part in parts)

    def built(self, parts: Sequence[AffineWeights], bias: Tensor | None, target: Target) -> Linear:
        return int4.build(parts, bias, target.dtype, target.device, target.numerics, target.native)

    def write(self, part: AffineWeights, out: Tensor) -> None:
        int4.write_dense(part, out)


class _Blockwise:
    """What the layouts share whose reference dequantises. ``_empty`` makes such a layer, ``_native`` a faster one."""

    def planned(self, out_features: int, bias: Tensor | None, target: Target) -> Linear:
        layer = self._chosen(out_features, target)
        layer.bias = bias
        return layer

    def fuses(self, parts: Sequence[Any]) -> bool:
        return True

    def built(self, parts: Sequence[Any], bias: Tensor | None, target: Target) -> Linear:
        declined: list[Declined] = []
        if target.native and target.device.type == "cuda":
            fast = self._on_gpu(parts, bias, target)
            if isinstance(fast, Linear):
                return fast
            declined.append(Declined(PATH, fast))
        layer = self._chosen(sum(part.out_features for part in parts), target, parts)
        layer.fill(parts)
        layer.bias = bias
        layer.declined = [*declined, *layer.declined]
        return layer

    def _on_gpu(self, parts: Sequence[Any], bias: Tensor | None, target: Target) -> Linear | str:
        """The layer over Triton kernels, or why there is none."""
        return "there is none for weights of so many bits"

    def write(self, part: Any, out: Tensor) -> None:
        self._filled([part], out.device, Numerics()).write(out)

    def _filled(self, parts: Sequence[Any], device: torch.device, numerics: Numerics) -> BlockwiseLinear:
        layer = self._empty(sum(part.out_features for part in parts), device, numerics)
        layer.fill(parts)
        return layer

    def _chosen(
        self, out_features: int, target: Target, parts: Sequence[Any] | None = None
    ) -> BlockwiseLinear | NativeGroupedLinear:
        """The layer for these parts, not yet filled; without parts it is planned."""
        native = None
        if target.native and target.device.type != "cuda":
            native = self._native(out_features, target, parts)
        if isinstance(native, NativeGroupedLinear):
            return native
        layer = self._empty(out_features, target.device, target.numerics, planned=parts is None)
        if native is not None:
            layer.declined = [native]
        return layer

    def _native(
        self, out_features: int, target: Target, parts: Sequence[Any] | None
    ) -> NativeGroupedLinear | Declined | None:
        """As :meth:`_chosen` in Kvasir's native code, or why not; None where there is no such code at all."""
        return None

    @abstractmethod
    def _empty(
        self, out_features: int, device: torch.device, numerics: Numerics, planned: bool = False
    ) -> BlockwiseLinear: ...


@dataclass(frozen=True)
class CodedLayout(_Blockwise):
    """Codes of another number of bits in groups (:class:`CodedWeights`)."""

    in_features: int
    bits: int
    group_size: int
    scales: torch.dtype
    symmetric: bool
    ordered: bool = False

    def _empty(
        self, out_features: int, device: torch.device, numerics: Numerics, planned: bool = False
    ) -> BlockwiseLinear:
        # What is loaded shows by itself whether its zero-points and its order say anything.
        absent = (planned and self.symmetric, planned and self.ordered)
        sizes = (self.in_features, out_features, self.group_size, self.scales, device, numerics, *absent)
        return Int8Linear(*sizes) if self.bits == 8 else CodedLinear(self.bits, *sizes)

    def _native(
        self, out_features: int, target: Target, parts: Sequence[CodedWeights] | None
    ) -> NativeGroupedLinear | Declined | None:
        if self.bits != 8:
            return None
        order = parts[0].group_of if parts else None
        reason = NativeInt8Linear.declines(
            self.in_features, self.group_size, self.scales, order, target.dtype, target.device
        )
        if reason is not None:
            return Declined(NativeInt8Linear.path, reason)
        absent = (parts is None and self.symmetric, parts is None and self.ordered)
        sizes = (self.in_features, out_features, self.group_size, self.scales, target.device, target.numerics)
        return NativeInt8Linear(*sizes, *absent)

    def fuses(self, parts: Sequence[CodedWeights]) -> bool:
        return all(_same(part.group_of, parts[0].group_of) for part in parts)

    def _on_gpu(self, parts: Sequence[CodedWeights], bias: Tensor | None, target: Target) -> Linear | str:
        layer = self._filled(parts, target.device, target.numerics) if self.bits == 8 else None
        if not isinstance(layer, Int8Linear):
            return super()._on_gpu(parts, bias, target)
        sizes = (self.in_features, self.group_size, layer.group_of is not None, layer.scales.dtype)
        reason = triton_int8.triton_declines(*sizes, layer.zeros is not None, target.dtype, target.device)
        if reason is not None:
            return reason
        tensors = (layer.codes, layer.scales, layer.zeros, bias)
        return triton_int8.TritonInt8Linear(*tensors, target.dtype, target.numerics)


@dataclass(frozen=True)
class TableLayout(_Blockwise):
    """4-bit codes that look up ``table`` (:class:`engine.layers.linear.table.TableWeights`).

    ``alone`` names a module that cannot be fused with any other: its last block is not whole, or its blocks'
    magnitudes are packed themselves.
    """

    in_features: int
    block: int
    table: tuple[float, ...]
    nested: Nested | None
    alone: str

    def _empty(
        self, out_features: int, device: torch.device, numerics: Numerics, planned: bool = False
    ) -> BlockwiseLinear:
        return TableLinear(self.in_features, out_features, self.block, self.nested, device, numerics)

    def _native(
        self, out_features: int, target: Target, parts: Sequence[Any] | None
    ) -> NativeGroupedLinear | Declined | None:
        reason = NativeTableLinear.declines(self.in_features, self.block, target.dtype, target.device)
        if reason is not None:
            return Declined(NativeTableLinear.path, reason)
        sizes = (self.in_features, out_features, self.block, self.nested)
        return NativeTableLinear(*sizes, target.device, target.numerics)

    def _on_gpu(self, parts: Sequence[Any], bias: Tensor | None, target: Target) -> Linear | str:
        sizes = (self.in_features, self.block)
        reason = triton_table.triton_declines(*sizes, self.nested is not None, target.dtype, target.device)
        if reason is not None:
            return reason
        layer = triton_table.TritonTableLinear(parts, *sizes, self.nested, target.dtype, target.device, target.numerics)
        layer.bias = bias
        return layer


@dataclass(frozen=True)
class RowsLayout(_Blockwise):
    """8-bit rows, each with one scale (:class:`engine.layers.linear.int8.Int8Rows`)."""

    in_features: int

    def _empty(
        self, out_features: int, device: torch.device, numerics: Numerics, planned: bool = False
    ) -> BlockwiseLinear:
        return Int8RowsLinear(self.in_features, out_features, device, numerics)

    def _native(
        self, out_features: int, target: Target, parts: Sequence[Any] | None
    ) -> NativeGroupedLinear | Declined | None:
        sizes = (self.in_features, self.in_features, torch.float32, None)
        reason = NativeInt8RowsLinear.declines(*sizes, target.dtype, target.device)
        if reason is not None:
            return Declined(NativeInt8RowsLinear.path, reason)
        return NativeInt8RowsLinear(self.in_features, out_features, target.device, target.numerics)

    def _on_gpu(self, parts: Sequence[Any], bias: Tensor | None, target: Target) -> Linear | str:
        sizes = (self.in_features, self.in_features, False, torch.float32, False)
        reason = triton_int8.triton_declines(*sizes, target.dtype, target.device)
        if reason is not None:
            return reason
        layer = self._filled(parts, target.device, target.numerics)
        assert isinstance(layer, Int8RowsLinear)
        tensors = (layer.codes, layer.scales, None, bias)
        return triton_int8.TritonInt8Linear(*tensors, target.dtype, target.numerics, factor=1 / 127)


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return torch.equal(a, b)
