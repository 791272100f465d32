"""Layouts of packed modules: the kind of linear layer that one becomes, its sizes, and whether neighbours fuse with it.

A layout follows from the configuration and the headers alone, so the same one plans a layer and loads it. Modules that
read the same input become one layer where their layouts are equal.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.compute.layers.linear import affine, choose, ggml
from engine.compute.layers.linear.affine import AffineWeights
from engine.compute.layers.linear.base import Linear, LinearShape, Nested, Target
from engine.compute.layers.linear.coded import CodedWeights
from engine.compute.layers.linear.dense import Concatenated
from engine.compute.layers.linear.ggml_blocks import Q4_0


class Layout(ABC):
    """Layout, compared by value. ``parts`` are what :attr:`PackedModule.read` gave for modules of this layout."""

    @abstractmethod
    def shape(self, out_features: int) -> LinearShape:
        """The layer's, as the headers have it."""

    def surveyed(self, parts: Sequence[Any]) -> LinearShape:
        """Same as :meth:`shape`, with what only the contents of a file tell."""
        return self.shape(sum(part.out_features for part in parts))

    def fuses(self, parts: Sequence[Any]) -> bool:
        """Return True if modules that the headers let fuse do so by their contents too (order of input features)."""
        return True

    def planned(self, out_features: int, bias: Tensor | None, target: Target) -> Linear:
        """The layer on device "meta", as it will be on the target's."""
        return choose.planned(self.shape(out_features), bias, target)

    def built(self, parts: Sequence[Any], bias: Tensor | None, target: Target) -> Linear:
        """The layer, filled."""
        return choose.built(self.surveyed(parts), parts, bias, target)

    def write(self, part: Any, out: Tensor) -> None:
        """Write the ``W [N, K]`` that a module stands for into ``out``, exact but for the rounding to its dtype."""
        layer = choose.reference(self.surveyed([part]), out.device)
        layer.fill([part])
        layer.write(out)


@dataclass(frozen=True)
class PackedModule:
    """One packed module, checked against the headers. ``read()`` gives the part that ``layout`` asks for."""

    layout: Layout
    read: Callable[[], Any]


@dataclass(frozen=True)
class AffineLayout(Layout):
    """4-bit codes in groups (:class:`AffineWeights`). ``ordered``: groups are not runs of input features."""

    in_features: int
    group: int
    scales: torch.dtype
    symmetric: bool
    ordered: bool = False

    def shape(self, out_features: int) -> LinearShape:
        sizes = (self.in_features, out_features, 4, self.group)
        return LinearShape("int4", *sizes, self.scales, self.symmetric, self.ordered)

    def surveyed(self, parts: Sequence[AffineWeights]) -> LinearShape:
        return affine.surveyed(parts)

    def fuses(self, parts: Sequence[AffineWeights]) -> bool:
        first = parts[0]
        return all(part.group == first.group and _same(part.order, first.order) for part in parts)


@dataclass(frozen=True)
class CodedLayout(Layout):
    """Codes of another number of bits in groups (:class:`CodedWeights`)."""

    in_features: int
    bits: int
    group_size: int
    scales: torch.dtype
    symmetric: bool
    ordered: bool = False

    def shape(self, out_features: int) -> LinearShape:
        kind = "int8" if self.bits == 8 else "coded"
        sizes = (self.in_features, out_features, self.bits, self.group_size)
        return LinearShape(kind, *sizes, self.scales, self.symmetric, self.ordered)

    def surveyed(self, parts: Sequence[CodedWeights]) -> LinearShape:
        group_of, even = parts[0].group_of, True
        if group_of is not None:
            runs = torch.arange(self.in_features, device=group_of.device) // self.group_size
            even = torch.equal(group_of.sort()[0], runs.to(group_of.dtype))
        symmetric = affine.is_symmetric(parts, 1 << (self.bits - 1))
        shape = super().surveyed(parts)
        return replace(shape, symmetric=symmetric, ordered=group_of is not None, even=even)

    def fuses(self, parts: Sequence[CodedWeights]) -> bool:
        return all(_same(part.group_of, parts[0].group_of) for part in parts)


@dataclass(frozen=True)
class TableLayout(Layout):
    """4-bit codes that look up ``table`` (:class:`engine.compute.layers.linear.table.TableWeights`).

    ``alone`` names a module that cannot be fused with any other: its last block is not whole, or its blocks'
    magnitudes are packed themselves.
    """

    in_features: int
    block: int
    table: tuple[float, ...]
    nested: Nested | None
    alone: str

    def shape(self, out_features: int) -> LinearShape:
        return LinearShape(
            "table4", self.in_features, out_features, group=self.block, table=self.table, nested=self.nested
        )


class TablePart(NamedTuple):
    """A 4-bit module (an :class:`engine.compute.layers.linear.table.TableWeights`)."""

    out_features: int
    packed: Tensor
    table: Tensor
    absmax: Tensor
    nested_absmax: Tensor | None = None
    nested_table: Tensor | None = None


@dataclass(frozen=True)
class RowsLayout(Layout):
    """8-bit rows, each with one scale (:class:`engine.compute.layers.linear.int8.Int8Rows`)."""

    in_features: int

    def shape(self, out_features: int) -> LinearShape:
        return LinearShape("int8 rows", self.in_features, out_features, 8, self.in_features, symmetric=True)


class RowsPart(NamedTuple):
    """An 8-bit module (an :class:`engine.compute.layers.linear.int8.Int8Rows`)."""

    out_features: int
    codes: Tensor
    largest: Tensor


def ggml_layer(
    parts: Sequence[ggml.GgmlWeights], bias: Tensor | None, target: Target, planning: bool = False
) -> Linear:
    """One layer of matrices fused along their output features; they agree in input features.

    Neighbours of one type share a layer; layers of several types stand side by side. ``planning``: the result is on
    device "meta", and so are the parts.
    """
    runs = [list(run) for _, run in itertools.groupby(parts, key=lambda part: part.type)]
    sizes = [sum(part.data.shape[0] for part in run) for run in runs]
    biases: Sequence[Tensor | None] = [None] * len(runs) if bias is None else bias.split(sizes)
    layers: list[Linear] = []
    for run, size, own in zip(runs, sizes, biases, strict=True):
        shape = ggml.shape(run[0].type, run[0].in_features, size)
        if planning:
            layers.append(choose.planned(shape, own, target))
        else:
            modules = [ggml.AffineQ4(part) for part in run] if run[0].type == Q4_0 else run
            layers.append(choose.built(shape, modules, own, target))
    return layers[0] if len(layers) == 1 else Concatenated(layers)


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return torch.equal(a, b)
