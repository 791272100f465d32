"""A cache for values that attention backends compute once for all layers of a step."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from engine.compute.batch import Batch

T = TypeVar("T")
BATCHES = 4
"""A step may have several: parts of it in several forms, and the keys that sequences share."""


class PerBatch(Generic[T]):
    """Values by batch and key, for the last few batches."""

    def __init__(self) -> None:
        self._batches: OrderedDict[int, tuple[Batch, dict[Hashable, T]]] = OrderedDict()

    def of(self, batch: Batch) -> dict[Hashable, T]:
        """The values of a batch, to be filled. A batch is kept with them, so that no other is given its id."""
        found = self._batches.get(id(batch))
        if found is None:
            found = self._batches[id(batch)] = (batch, {})
            if len(self._batches) > BATCHES:
                self._batches.popitem(last=False)
        return found[1]
