"""The token table."""

from __future__ import annotations

from torch import Tensor


class Embedding:
    """Looks up rows of ``weight [vocab_size, hidden_size]``."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def forward(self, tokens: Tensor) -> Tensor:
        """``tokens [T]`` int64 -> ``[T, hidden_size]``, a new tensor."""
        return self.weight.index_select(0, tokens)

    def storage_size(self) -> int:
        return self.weight.numel() * self.weight.element_size()
