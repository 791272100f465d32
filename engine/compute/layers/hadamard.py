"""Mixing the numbers of queries and keys before keys are packed (Ashkboos et al. 2024, QuaRot, arXiv 2404.00456).

Keys of most models have a few channels many times as large as the others. Codes of a token share a scale, which such a
channel stretches until the others have few codes left. The Walsh-Hadamard matrix H is orthonormal, so q.k = (Hq).(Hk),
and Hk has what was in one channel in all of them. Values have no such channels, and KIVI's keys have a scale for each
channel: there the mixing takes away more than it gives (docs/measurements.md).
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from engine.compute.layers.numerics import Numerics
from engine.compute.native.library import NativeLibrary, find


class Hadamard:
    """``x [T, heads, d]`` -> each head times H, a new tensor of the dtype of x, computed in float32.

    H is of the largest power of two that divides d, and is used for that many neighbouring numbers at a time.
    """

    def __init__(self, width: int, device: torch.device, numerics: Numerics) -> None:
        self.size, self.device, self.numerics = width & -width, device, numerics
        self._library: NativeLibrary | None = find().library if device.type == "cpu" else None

    def __call__(self, x: Tensor) -> Tensor:
        mixed = None if self._library is None else self._library.hadamard(x, self.size)
        return self.numerics.by_row(self._product, x) if mixed is None else mixed

    @cached_property
    def _matrix(self) -> Tensor:
        """Made by the first product: native code needs none, nor does a cache whose keys are not mixed."""
        matrix = torch.ones(1, 1, device=self.device)
        while len(matrix) < self.size:
            matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
        return matrix * self.size**-0.5

    def _product(self, x: Tensor) -> Tensor:
        return (x.float().unflatten(-1, (-1, self.size)) @ self._matrix).flatten(-2).to(x.dtype)
