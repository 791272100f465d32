"""The embeddings of pictures, computed when the first row of one is read and kept for later rows and chats."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor

from engine.compute.batch import EmbeddedRows
from engine.compute.vision.interface import Picture, Tower
from engine.compute.vision.placeholders import PlaceholderSpans

KEPT_BYTES = 64 << 20
"""Embeddings that are kept: about 8,000 tokens of pictures in 16 bits at a hidden size of 4096."""


class PictureEmbeddings:
    """Cache of a tower's embeddings by picture key; least recently used go first. Used by the engine thread alone."""

    def __init__(self, tower: Tower, budget: int = KEPT_BYTES) -> None:
        self.tower, self._budget = tower, budget
        self._kept: OrderedDict[bytes, Tensor] = OrderedDict()
        self._size = 0

    @property
    def whole(self) -> bool:
        """True if all of a picture's tokens are read in one step."""
        return self.tower.bidirectional != "none"

    def rows(self, places: PlaceholderSpans, start: int, stop: int) -> tuple[EmbeddedRows, ...]:
        """The embeddings among the tokens [start, stop) of a sequence, whose rows count from ``start``."""
        ahead, runs = self.tower.bidirectional, list(places.runs(start, stop))
        assert ahead == "none" or all(run.end == run.picture.tokens for run in runs), "a step ends within a picture"
        return tuple(EmbeddedRows(run.first - start, self._of(run.picture)[run.begin : run.end], ahead) for run in runs)

    def _of(self, picture: Picture) -> Tensor:
        """Each picture by itself, so that its embeddings do not depend on those that come with it."""
        found = self._kept.get(picture.key)
        if found is None:
            with torch.inference_mode():
                (found,) = self.tower.forward([picture])
            self._kept[picture.key] = found
            self._size += found.nbytes
        self._kept.move_to_end(picture.key)
        while self._size > self._budget and len(self._kept) > 1:
            self._size -= self._kept.popitem(last=False)[1].nbytes
        return found

    def storage_size(self) -> int:
        """Bytes of what is kept."""
        return self._size
