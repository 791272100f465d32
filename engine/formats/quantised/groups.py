"""Steps from a format's packed module to a layer that GPTQ, AWQ and compressed-tensors share."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from engine.base.errors import CheckpointError
from engine.compute.layers.linear.affine import PER_WORD, AffineColumns
from engine.compute.layers.linear.coded import CodedWeights, word_count
from engine.formats.quantised.layouts import AffineLayout, CodedLayout, PackedModule
from engine.formats.tensors import MISMATCH

_RUNS = (256, 128, 64, 32, 16, 8, 4, 2, 1)


class AffineRuns:
    """4-bit codes as an :class:`engine.compute.layers.linear.affine.AffineWeights`.

    The group of the result need not be the file's: it is the longest of 256, 128, … 1 that divides K and lies within
    one group everywhere, so one group over all of K, or a last group that is shorter, need nothing special.
    """

    def __init__(self, weights: CodedWeights) -> None:
        self._weights = weights
        self.in_features, self.out_features = weights.in_features, weights.out_features
        self.order: Tensor | None = None
        of_row = torch.arange(self.in_features) // weights.group_size
        if weights.group_of is not None:
            of_row, order = weights.group_of.long().sort(stable=True)
            self.order = None if torch.equal(order, torch.arange(len(order))) else order
        self.group = next(run for run in _RUNS if _constant_in_runs(of_row, run))
        self._group_of = of_row[:: self.group]

    def columns(self, start: int, stop: int) -> AffineColumns:
        """Output features ``[start, stop)``, which need not be multiples of anything."""
        words, scales, zeros = self._weights.columns(start, stop)
        return AffineColumns(words, scales[self._group_of], zeros[self._group_of])


def _constant_in_runs(of_row: Tensor, run: int) -> bool:
    if len(of_row) % run:
        return False
    runs = of_row.view(-1, run)
    return bool((runs == runs[:, :1]).all())


@functools.lru_cache
def planned_group(in_features: int, group_size: int) -> int:
    """The group that :class:`AffineRuns` will have, from the configuration alone (act-order permitting)."""
    size = group_size if group_size > 0 else in_features
    return next(run for run in _RUNS if in_features % run == 0 and (size % run == 0))


def stated_order(name: str, g_idx: Tensor | None, groups: int, group_size: int) -> Tensor | None:
    """``g_idx [K]`` as int32; None where it says no more than ``k // group_size`` or says nothing.

    Raises :class:`CheckpointError` where it names a group that does not exist. ``name`` is the tensor's.
    """
    if g_idx is None or not bool(g_idx.any()) or bool((g_idx == -1).all()):
        return None
    if not bool(((g_idx >= 0) & (g_idx < groups)).all()):
        raise CheckpointError(f"{name} names groups that do not exist. Download the model again.")
    found = g_idx.to(torch.int32, copy=True)
    return None if torch.equal(found, torch.arange(len(found), dtype=torch.int32) // group_size) else found


def choose_packing(
    name: str,
    packings: tuple[tuple[int, int], ...],
    in_features: int,
    words: int,
    groups: int,
    count: Callable[[int, int], int] = word_count,
) -> tuple[int, int]:
    """The (bits, group size) of a module whose codes take ``words`` words along K, with ``groups`` groups.

    ``count(K, bits)`` is what they should take. Group sizes of -1 become K. Raises :class:`CheckpointError` where the
    bits are none of those configured; other sizes that contradict the configuration are left for the checks of the
    tensors' shapes.
    """
    sizes = [(bits, size if size > 0 else in_features) for bits, size in packings]
    fitting = [packing for packing in sizes if count(in_features, packing[0]) == words]
    if fitting:
        return next((packing for packing in fitting if -(-in_features // packing[1]) == groups), fitting[0])
    for bits in range(1, 9):
        if count(in_features, bits) == words:
            raise CheckpointError(
                f"{name} is packed in {bits} bits where the configuration says {packings[0][0]}. {MISMATCH}"
            )
    return sizes[0]


def grouped(
    read: Callable[[], CodedWeights],
    in_features: int,
    bits: int,
    group_size: int,
    scales: torch.dtype,
    symmetric: bool,
    ordered: bool,
) -> PackedModule:
    """A module of group-affine codes: 4 bits become the int4 kind, others are held as in the file.

    ``ordered``: the configuration speaks of an order, which a single group cannot have.
    """
    ordered = ordered and group_size < in_features
    if bits == 4 and in_features % PER_WORD == 0:
        group = planned_group(in_features, group_size)
        return PackedModule(AffineLayout(in_features, group, scales, symmetric, ordered), lambda: AffineRuns(read()))
    return PackedModule(CodedLayout(in_features, bits, group_size, scales, symmetric, ordered), read)
