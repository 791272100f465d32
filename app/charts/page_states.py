"""A page map as arrays: the state and the owner's hue of every page."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np

from app.charts.hues import NO_OWNER, ChatHues
from engine.protocol import PAGE_STATES, PageCounts, PageMap, PageOwner, PageState

SWAPPED = len(PAGE_STATES)
"""State of a cell beyond PAGE_STATES: a page in host memory."""
RESERVED = SWAPPED + 1
"""And: an owner's page that is empty; after it those that are filled to a quarter, a half and three quarters."""
FILLS = 4
"""Number of these."""
_FREE, _PRIVATE = PAGE_STATES.index("free"), PAGE_STATES.index("private")
_CACHED = PAGE_STATES.index("cached")
_EMPTY = (_FREE, PAGE_STATES.index("evicted"))


class PageStates(NamedTuple):
    """``states`` and ``owners`` are [pages]: an index of PAGE_STATES, and 0 or 1 + a place in ``legend``."""

    states: np.ndarray
    owners: np.ndarray
    legend: list[PageOwner]
    page_tokens: int = 16
    swapped: int = 0
    saved: int = 0

    @property
    def total(self) -> int:
        return len(self.states)

    def owner(self, page: int) -> PageOwner | None:
        index = int(self.owners[page])
        return self.legend[index - 1] if index else None

    def hues(self, hues: ChatHues) -> np.ndarray:
        """The hue of every page, uint8 [pages]; pages that hold nothing have NO_OWNER."""
        table = np.array([NO_OWNER, *(hues.of(key(owner)) for owner in self.legend)], dtype=np.uint8)
        found = table[self.owners]
        found[np.isin(self.states, _EMPTY)] = NO_OWNER
        return found

    def counts(self) -> dict[PageState, int]:
        """Number of pages in each state."""
        return dict(zip(PAGE_STATES, np.bincount(self.states, minlength=len(PAGE_STATES)).tolist(), strict=True))

    def owned(self) -> dict[str, int]:
        """Number of pages that each chat fills, by :func:`key` of their owner, the most first."""
        held = ~np.isin(self.states, _EMPTY)
        counts = np.bincount(self.owners[held], minlength=len(self.legend) + 1)[1:]
        found: dict[str, int] = {}
        for owner, count in zip(self.legend, counts.tolist(), strict=True):
            if count:
                found[key(owner)] = found.get(key(owner), 0) + count
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def key(owner: PageOwner) -> str:
    """Key that tells owners apart: the chat, or the request of a client that named none."""
    return owner.chat or owner.id


def decode(message: PageMap) -> PageStates:
    """Raises ValueError for a map whose parts do not agree."""
    try:
        states = np.frombuffer(zlib.decompress(message.states), dtype=np.uint8)
        owners = np.frombuffer(zlib.decompress(message.owners), dtype="<u2")
    except zlib.error as error:
        raise ValueError(f"a page map is damaged: {error}") from error  # not shown
    if not len(states) == len(owners) == message.total:
        found = f"{len(states)} states and {len(owners)} owners"  # not shown
        raise ValueError(f"a page map of {message.total} pages has {found}")  # not shown
    if message.total and (states.max() >= len(PAGE_STATES) or owners.max() > len(message.legend)):
        raise ValueError("a page map names a state or an owner that it does not explain")  # not shown
    return PageStates(states, owners, message.legend, message.page_tokens, message.swapped, message.saved)


def from_counts(counts: PageCounts) -> PageStates:
    """Build the pages that are assumed before a map has come, from the numbers of those in use and cached."""
    states = np.full(counts.total, _FREE, dtype=np.uint8)
    states[: counts.used] = _CACHED
    states[: counts.used - counts.cached] = _PRIVATE
    return PageStates(states, np.zeros(counts.total, dtype=np.uint16), [])
