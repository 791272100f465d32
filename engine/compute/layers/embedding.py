"""The token table."""

from __future__ import annotations

from typing import Protocol

import torch
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


class StoredEmbedding:
    """Looks up rows of a table that stays in its file: those that were looked up are in the system's cache of files,
    which takes the memory back where something else wants it.

    ``rows [vocab_size, hidden_size]`` is a view of the mapped file in the dtype that it has there; ``dtype`` and
    ``device`` are the model's.
    """

    def __init__(self, rows: Tensor, dtype: torch.dtype, device: torch.device) -> None:
        self._rows, self._dtype, self._device, self._size = rows, dtype, device, 0

    def forward(self, tokens: Tensor) -> Tensor:
        """``tokens [T]`` int64 -> ``[T, hidden_size]``, a new tensor."""
        return self._rows.index_select(0, tokens.to(self._rows.device)).to(self._device, self._dtype)

    def whole(self) -> Tensor:
        """The whole table in the model's dtype: a view, or a tensor that nothing holds."""
        return self._rows.to(self._dtype)

    def read_in(self) -> Tensor:
        """Hold the table in memory from now on, and return it: an output head that is tied to it reads all of it."""
        self._rows = self._rows.to(self._dtype, copy=True)
        self._size = self._rows.nbytes
        return self._rows

    def storage_size(self) -> int:
        return self._size


def token_table(table: Tensor | TokenTable) -> TokenTable:
    """A weight source's table, whether it is packed or not."""
    return Embedding(table) if isinstance(table, Tensor) else table
