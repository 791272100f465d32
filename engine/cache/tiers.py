"""Tiers below the device for pages that it has no room for, as the prefix tree and the scheduler see them.

Host memory is :class:`engine.cache.offload.swap.SwapSpace`, whose handles are what is held; files are
:class:`engine.cache.offload.saved.SavedChats`, from which pages only come: they are written after an answer, not when
room is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from engine.cache.offload.saved import Kind, SavedChats
from engine.cache.offload.swap import Swapped, SwapSpace
from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.paged import PagedStore
from engine.cache.types import OffloadedPages


@dataclass(eq=False, slots=True)
class OnDisk:
    """The pages [first, stop) of a saved chat's ``tokens``; the target's arenas alone."""

    saved: SavedChats
    chat: str
    kind: Kind
    tokens: Sequence[int]
    first: int
    stop: int
    place: ClassVar[str] = "disk"


@dataclass(eq=False, slots=True)
class Received:
    """Pages that another engine computed, uint8 [pages * page_bytes]; the target's arenas alone."""

    data: Tensor
    place: ClassVar[str] = "host"


class Tiers:
    """Implements :class:`engine.cache.types.Tier` with host memory and saved chats."""

    def __init__(self, stores: Sequence[PagedStore], space: SwapSpace, gives_way: bool = True) -> None:
        """``gives_way``: what is put without ``keep`` may be given up."""
        self.stores, self.space = tuple(stores), space
        self.dropped: Callable[[OffloadedPages], None] = lambda held: None
        if gives_way:
            others = space.on_evict

            def dropped(handle: Swapped) -> None:
                others(handle)
                self.dropped(handle)

            space.on_evict = dropped

    def size(self, pages: int) -> tuple[int, int]:
        """Implements :meth:`engine.cache.types.Tier.size`."""
        return pages * sum(store.page_bytes for store in self.stores), self.space.cost(self.stores, pages)

    def put(self, pages: Sequence[int], keep: bool = False) -> OffloadedPages | None:
        """Implements :meth:`engine.cache.types.Tier.put`."""
        return self.space.put(self.stores, pages, len(pages) * PAGE_SIZE, "answer" if keep else "tree")

    def split(self, held: OffloadedPages, pages: int) -> tuple[OffloadedPages, OffloadedPages]:
        """Implements :meth:`engine.cache.types.Tier.split`."""
        if isinstance(held, OnDisk):
            cut = held.first + pages
            return replace(held, stop=cut), replace(held, first=cut)
        assert isinstance(held, Swapped)
        return self.space.split(held, pages)

    def take(self, held: OffloadedPages, pages: Sequence[int]) -> bool:
        """Implements :meth:`engine.cache.types.Tier.take`."""
        if isinstance(held, Received):
            self.stores[0].import_pages(pages, held.data.view(len(pages), -1))
            return True
        if isinstance(held, OnDisk):
            data = held.saved.load(held.chat, held.kind, held.tokens, held.first, held.stop)
            if data is None:
                return False
            self.stores[0].import_pages(pages, data)
            return True
        assert isinstance(held, Swapped)
        self.space.get([held], self.stores, pages)
        return True

    def drop(self, held: OffloadedPages) -> None:
        """Implements :meth:`engine.cache.types.Tier.drop`."""
        if isinstance(held, Swapped):
            self.space.drop([held])
