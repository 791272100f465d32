"""Dense layers that make an embedding of a pooled state (sentence-transformers' ``Dense``)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Projection(NamedTuple):
    """``act(weight x + bias)``: ``weight`` [out, in] and ``bias`` [out] float32; the activation is tanh or none."""

    weight: Tensor
    bias: Tensor | None = None
    tanh: bool = False

    def forward(self, x: Tensor) -> Tensor:
        """``x [in]`` float32 -> ``[out]``."""
        found = F.linear(x, self.weight, self.bias)
        return torch.tanh(found) if self.tanh else found
