"""The token table."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class TokenTable(Protocol):
    """Looks up the rows of tokens, however they are stored."""

    def forward(self, tokens: Tensor) -> Tensor:
        """``tokens [T]`` int64 -> ``[T, hidden_size]`` in the model's dtype, a new tensor."""

    def storage_size(self) -> int:
        """Bytes held."""


class Embedding:
    """Looks up rows of ``weight [vocab_size, hidden_size]``."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def forward(self, tokens: Tensor) -> Tensor:
        """``tokens [T]`` int64 -> ``[T, hidden_size]``, a new tensor."""
        return self.weight.index_select(0, tokens)

    def storage_size(self) -> int:
        return self.weight.nbytes


def token_table(table: Tensor | TokenTable) -> TokenTable:
    """A weight source's table, whether it is packed or not."""
    return Embedding(table) if isinstance(table, Tensor) else table
