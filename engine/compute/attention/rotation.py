"""The rotation of a step's rows, and how it is applied to queries and keys."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from engine.compute.native.library import NativeLibrary


class RotaryStep:
    """One step's rotation, made once and used by every layer: ``cos`` and ``sin [T, 1, r]``, r dimensions.

    The first half of ``sin`` is negated, so that rotating is ``x * cos + swap_halves(x) * sin``.
    """

    def __init__(self, cos: Tensor, sin: Tensor, library: NativeLibrary | None = None) -> None:
        """``library`` is native code that rotates, where there is some."""
        self._rows, self.library = (cos, sin), library

    @property
    def cos(self) -> Tensor:
        return self._rows[0]

    @property
    def sin(self) -> Tensor:
        return self._rows[1]

    @property
    def width(self) -> int:
        """Dimensions of a head that rotate."""
        return self.cos.shape[-1]


class TableRotaryStep(RotaryStep):
    """Rotation at ``positions [T]`` int64 of ``table [rows, 2, r]``, which is not looked up before somebody asks."""

    def __init__(self, table: Tensor, positions: Tensor, library: NativeLibrary | None = None) -> None:
        self.table, self.positions, self.library = table, positions, library

    @cached_property
    def _rows(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        rows = self.table.index_select(0, self.positions)
        return rows[:, :1], rows[:, 1:]

    @cached_property
    def columns(self) -> tuple[Tensor, Tensor]:
        """Cos and sin ``[rows, r]`` of all positions, views of the table."""
        return self.table[:, 0], self.table[:, 1]

    @property
    def width(self) -> int:
        return self.table.shape[-1]


def rotate(x: Tensor, step: RotaryStep) -> Tensor:
    """Rotate the first dimensions of every head of ``x [T, heads, d]`` to its row's position; a new tensor.

    Products and the sum are separate, each exactly rounded, so that a row's bits do not depend on its neighbours.
    """
    turned = None if step.library is None else step.library.rotate(x, step.cos, step.sin)
    if turned is not None:
        return turned
    width = step.cos.shape[-1]
    if width < x.shape[-1]:
        return torch.cat((rotate(x[..., :width], step), x[..., width:]), -1)
    return torch.mul(x, step.cos).add_(torch.roll(x, x.shape[-1] // 2, -1).mul_(step.sin))
