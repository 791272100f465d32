"""The one interface of all linear layers, whatever their weights are packed as."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor


class Declined(NamedTuple):
    """A fast path that does not serve a layer, and why (a short phrase for people)."""

    path: str
    reason: str


class Linear(ABC):
    """``y = x W^T + b`` with ``W [out_features, in_features]``.

    ``kind`` names the storage ("dense", "int4"), ``path`` the fast path chosen, ``declined`` those tried before it.
    """

    in_features: int
    out_features: int
    kind: str
    path: str
    declined: list[Declined]
    as_in_file: bool = False
    """Whether the weights are held as the file has them, so that loading is copying."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """``x [T, in_features]`` in the model's dtype -> ``[T, out_features]`` in the same."""

    @abstractmethod
    def forward_float32(self, x: Tensor) -> Tensor:
        """As :meth:`forward` with a float32 result that was never rounded to less (for logits)."""

    @abstractmethod
    def storage_size(self) -> int:
        """Bytes that this layer holds, all of which one forward reads."""

    @abstractmethod
    def dequantised(self, dtype: torch.dtype) -> Tensor:
        """A new dense ``W [out_features, in_features]``; for tests, the 16-bit switch and measurements."""

    def __call__(self, x: Tensor) -> Tensor:
        return self.forward(x)
