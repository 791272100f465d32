"""All arenas of a loaded model as one: a page number names the same tokens in each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.cache.store import KVStore


class Arenas:
    """The target's keys and values and, where there is one, the draft model's."""

    def __init__(self, stores: Sequence[KVStore]) -> None:
        self.stores = tuple(stores)

    def copy_page(self, src: int, dst: int) -> None:
        """See :class:`engine.scheduling.memory.Content`."""
        for store in self.stores:
            store.copy_page(src, dst)


@dataclass(slots=True)
class CacheCounts:
    """Since the model was loaded: tokens of prompts, and those of them that did not have to be computed."""

    looked_up: int = 0
    hit: int = 0

    def found(self, prompt: int, cached: int) -> None:
        """A prompt was admitted."""
        self.looked_up += prompt
        self.hit += cached
