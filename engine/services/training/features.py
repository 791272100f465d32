"""Features that the frozen model gives every token of the rows, computed once: in memory, or on disk if too large."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from engine.services.training.errors import RecipeError
from engine.services.training.rows import TrainingRow

IN_MEMORY = 2_000_000_000
"""Bytes of features that are kept in memory."""


class FeatureBatch(NamedTuple):
    """Rows side by side, padded: ``features [B, n, hidden_size]`` float32, ``tokens [B, n]`` int64.

    ``lengths [B]`` are the rows' own, ``counted [B]`` from which index on each row's tokens are measured.
    """

    features: Tensor
    tokens: Tensor
    lengths: Tensor
    counted: Tensor


class FeatureCache:
    """Rows and their features, appended block by block. ``file`` takes them once ``in_memory`` bytes are exceeded."""

    def __init__(self, hidden_size: int, file: Path, in_memory: int = IN_MEMORY) -> None:
        self.rows: list[TrainingRow] = []
        self._starts = [0]
        self._hidden, self._file, self._limit = hidden_size, file, in_memory
        self._parts: list[Tensor] = []
        self._dtype = torch.float32
        self._flat: Tensor | None = None
        file.unlink(missing_ok=True)  # of a run that was broken off; its features are computed again

    @property
    def on_disk(self) -> bool:
        return self._file.is_file()

    @property
    def tokens(self) -> int:
        return self._starts[-1]

    def append(self, rows: Sequence[TrainingRow], features: Tensor) -> None:
        """``features [sum of lengths, hidden_size]``. Raises :class:`RecipeError` where the disk is full."""
        for row in rows:
            self.rows.append(row)
            self._starts.append(self._starts[-1] + len(row.tokens))
        self._flat, self._dtype = None, features.dtype
        # A copy outside of inference mode is a tensor that gradients may be taken through.
        self._parts.append(features.to("cpu", copy=True))
        if sum(part.nbytes for part in self._parts) > self._limit or self.on_disk:
            self._spill()

    def batch(self, places: Sequence[int], device: torch.device) -> FeatureBatch:
        """The rows at these places."""
        flat = self._whole()
        features = [flat[self._starts[place] : self._starts[place + 1]].to(device).float() for place in places]
        tokens = [torch.tensor(self.rows[place].tokens) for place in places]
        lengths = torch.tensor([len(row) for row in tokens], device=device)
        counted = torch.tensor([self.rows[place].counted for place in places], device=device)
        return FeatureBatch(
            pad_sequence(features, batch_first=True),
            pad_sequence(tokens, batch_first=True).to(device),
            lengths,
            counted,
        )

    def close(self) -> None:
        """Let go of the features and their file."""
        self._flat, self._parts = None, []
        self._file.unlink(missing_ok=True)

    def _spill(self) -> None:
        try:
            with self._file.open("ab") as stream:
                for part in self._parts:
                    stream.write(part.view(torch.uint8).numpy().tobytes())  # numpy knows no bfloat16
        except OSError as error:
            raise disk_error(self._file, error) from error
        self._parts = []

    def _whole(self) -> Tensor:
        if self._flat is None:
            if self.on_disk:
                size = self.tokens * self._hidden
                # A private map: written to by nobody, and the system may drop its pages.
                whole = torch.from_file(str(self._file), shared=False, size=size, dtype=self._dtype)
                self._flat = whole.view(-1, self._hidden)
            else:
                self._flat = torch.cat(self._parts)
                self._parts = [self._flat]
        return self._flat


def disk_error(file: Path, error: OSError) -> RecipeError:
    """The sentence for a file that cannot be written."""
    return RecipeError(
        f"{file} cannot be written ({error.strerror}). Make room, or name another folder with --out; then start again "
        "with --resume."
    )
