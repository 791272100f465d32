"""What the frozen model sees of every token of the rows, computed once: in memory, or on disk where it is too large."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from engine.recipes.errors import RecipeError
from engine.recipes.rows import TrainingRow

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
        self._flat = None
        self._dtype = features.dtype
        if features.dtype == torch.bfloat16:
            features = features.view(torch.int16)  # numpy knows no bfloat16
        # A copy outside of inference mode is a tensor that gradients may be taken through.
        part = torch.empty(features.shape, dtype=features.dtype)
        part.copy_(features)
        self._parts.append(part)
        if self._bytes() > self._limit or self.on_disk:
            self._spill()

    def batch(self, places: Sequence[int], device: torch.device) -> FeatureBatch:
        """The rows at these places."""
        flat = self._whole()
        lengths = [len(self.rows[place].tokens) for place in places]
        features = torch.zeros(len(places), max(lengths), self._hidden, device=device)
        tokens = torch.zeros(len(places), max(lengths), dtype=torch.int64)
        for i, (place, n) in enumerate(zip(places, lengths, strict=True)):
            part = flat[self._starts[place] : self._starts[place] + n]
            features[i, :n] = (part.view(torch.bfloat16) if self._dtype == torch.bfloat16 else part).to(device)
            tokens[i, :n] = torch.tensor(self.rows[place].tokens)
        counted = torch.tensor([self.rows[place].counted for place in places])
        return FeatureBatch(features, tokens.to(device), torch.tensor(lengths, device=device), counted.to(device))

    def close(self) -> None:
        """Let go of the features and their file."""
        self._flat, self._parts = None, []
        self._file.unlink(missing_ok=True)

    def _bytes(self) -> int:
        return sum(part.numel() * part.element_size() for part in self._parts)

    def _spill(self) -> None:
        try:
            with self._file.open("ab") as stream:
                for part in self._parts:
                    stream.write(part.numpy().tobytes())
        except OSError as error:
            raise disk_error(self._file, error) from error
        self._parts = []

    def _whole(self) -> Tensor:
        if self._flat is None:
            if self.on_disk:
                kind = torch.int16 if self._dtype == torch.bfloat16 else self._dtype
                size = self.tokens * self._hidden
                # A private map: written to by nobody, and the system may drop its pages.
                whole = torch.from_file(str(self._file), shared=False, size=size, dtype=kind)
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
