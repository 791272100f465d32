"""The non-linear functions of the feed-forward blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from engine.layers.numerics import Numerics, by_row

ActivationKind = Literal["silu", "gelu", "gelu_tanh", "relu"]
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}


class Activation:
    """One of :data:`FUNCTIONS`, row by row in the batch-invariant mode."""

    def __init__(self, kind: ActivationKind, numerics: Numerics) -> None:
        self.function, self.numerics = FUNCTIONS[kind], numerics

    def __call__(self, x: Tensor) -> Tensor:
        """``x [T, ...]`` -> a new tensor of the same shape and dtype."""
        return by_row(self.function, x) if self.numerics.batch_invariant else self.function(x)
