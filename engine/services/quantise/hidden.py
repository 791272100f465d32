"""Inputs of a layer for every sequence of the calibration: in a file, whatever its size, so that a run can go on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engine.services.training.features import disk_error


class HiddenStates:
    """A file of float32 rows ``[sum of lengths, hidden_size]``, of which the system keeps in memory what fits."""

    def __init__(self, file: Path, sequences: Sequence[Sequence[int]], size: int, device: torch.device) -> None:
        self.file, self._sequences, self._size, self._device = file, sequences, size, device

    def write(self, parts: Iterable[Tensor]) -> None:
        """A part for each sequence; all of the file or nothing. Raises :class:`RecipeError` where the disk is full."""
        unfinished = self.file.with_name(f"{self.file.name}.unfinished")
        try:
            with unfinished.open("wb") as stream:
                for part in parts:
                    stream.write(part.cpu().numpy().tobytes())
            unfinished.replace(self.file)
        except OSError as error:
            raise disk_error(self.file, error) from error

    def __iter__(self) -> Iterator[tuple[Sequence[int], Tensor]]:
        """The sequences, and what enters the layer of each: ``[T, hidden_size]`` on the device."""
        rows = np.memmap(self.file, np.float32, "r").reshape(-1, self._size)
        start = 0
        for tokens in self._sequences:
            yield tokens, torch.from_numpy(np.array(rows[start : start + len(tokens)])).to(self._device)
            start += len(tokens)
