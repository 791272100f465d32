"""Where pages go that the device has no room for, as the prefix tree and the scheduler see it.

Host memory is :class:`engine.cache.offload.swap.SwapSpace`; files are :class:`engine.cache.offload.saved.SavedChats`,
from which pages only come: they are written after an answer, not when room is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.cache.offload.saved import Kind, SavedChats
from engine.cache.offload.swap import Swapped, SwapSpace
from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.store import KVStore
from engine.cache.types import OffloadedPages


@dataclass(eq=False, slots=True)
class InHost:
    """Pages in host memory, of all arenas."""

    handle: Swapped

    @property
    def place(self) -> str:
        return "host"


@dataclass(eq=False, slots=True)
class OnDisk:
    """The pages [first, stop) of a saved chat's ``tokens``; the target's arenas alone."""

    saved: SavedChats
    chat: str
    kind: Kind
    tokens: Sequence[int]
    first: int
    stop: int

    @property
    def place(self) -> str:
        return "disk"


class Tiers:
    """See :class:`engine.cache.types.Tier`."""

    def __init__(self, stores: Sequence[KVStore], space: SwapSpace, gives_way: bool = True) -> None:
        """``gives_way``: what is put without ``keep`` may be given up; of one space's tiers only one may do so."""
        self.stores, self.space = tuple(stores), space
        self.dropped: Callable[[OffloadedPages], None] = lambda held: None
        self._of: dict[Swapped, InHost] = {}
        if gives_way:
            space.on_evict = self._evicted

    def put(self, pages: Sequence[int], keep: bool = False) -> OffloadedPages | None:
        """See :meth:`engine.cache.types.Tier.put`."""
        handle = self.space.put(self.stores, pages, len(pages) * PAGE_SIZE, "answer" if keep else "tree")
        return None if handle is None else self._wrapped(handle)

    def split(self, held: OffloadedPages, pages: int) -> tuple[OffloadedPages, OffloadedPages]:
        """See :meth:`engine.cache.types.Tier.split`."""
        if isinstance(held, OnDisk):
            cut = held.first + pages
            rest = held.saved, held.chat, held.kind, held.tokens
            return OnDisk(*rest, held.first, cut), OnDisk(*rest, cut, held.stop)
        assert isinstance(held, InHost)
        first, second = self.space.split(held.handle, pages)
        del self._of[held.handle]
        return self._wrapped(first), self._wrapped(second)

    def take(self, held: OffloadedPages, pages: Sequence[int]) -> bool:
        """See :meth:`engine.cache.types.Tier.take`."""
        if isinstance(held, OnDisk):
            data = held.saved.load(held.chat, held.kind, held.tokens, held.first, held.stop)
            if data is None:
                return False
            self.stores[0].import_pages(pages, data)
            return True
        assert isinstance(held, InHost)
        del self._of[held.handle]
        self.space.get([held.handle], self.stores, pages)
        return True

    def drop(self, held: OffloadedPages) -> None:
        """See :meth:`engine.cache.types.Tier.drop`."""
        if isinstance(held, InHost) and self._of.pop(held.handle, None) is not None:
            self.space.drop([held.handle])

    def _wrapped(self, handle: Swapped) -> InHost:
        held = self._of[handle] = InHost(handle)
        return held

    def _evicted(self, handle: Swapped) -> None:
        held = self._of.pop(handle, None)
        if held is not None:
            self.dropped(held)
