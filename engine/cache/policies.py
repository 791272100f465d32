"""Which of its sequence's keys a row sees: page policies.

A policy is a function of the row's index in the sequence alone, never of how rows were batched. So chunks, prefix hits,
preemption and speculation change nothing, and it is known in advance which pages no later row will read.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from engine.cache.pool import PAGE_SIZE, pages_for

LEAST_WINDOW = 64
"""Rows of a drafted tree see their whole committed prefix at least, as far as a window reaches: trees have 64 rows."""


class RowSights(NamedTuple):
    """What some rows see, [T] int64 each: the keys from `first` on, and besides the first `sinks` of their sequence.

    Those are seen by a query that is rotated to `sink_positions`; without sinks that means nothing.
    """

    first: np.ndarray
    sinks: np.ndarray
    sink_positions: np.ndarray


class PagePolicy(Protocol):
    """Hides keys from rows, and lets pages go."""

    name: str
    """Its value in the catalogue."""

    @property
    def title(self) -> str:
        """For people: "all pages"."""

    def restricts(self, stop: int) -> bool:
        """Whether any row with an index below `stop` does not see all keys before it."""

    def sights(self, index: np.ndarray) -> RowSights:
        """What the rows with these indices [T] see."""

    def chosen(self, index: np.ndarray) -> np.ndarray | None:
        """How many pages of that each head reads, [T] int64, 0 for all of them; None: every row reads all of them."""

    def dead_pages(self, committed: int) -> tuple[int, int]:
        """Pages [a, b) of a sequence that no row with an index >= `committed` will read; a >= b: none."""

    def kept_pages(self, length: int) -> int:
        """The most pages that a sequence of `length` tokens needs while it grows by one token a step."""


class KeepAll:
    """Every row sees all keys before it."""

    name = "keep_all"
    title = "all pages"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeepAll)

    def __hash__(self) -> int:
        return hash(self.name)

    def restricts(self, stop: int) -> bool:
        """See `PagePolicy.restricts`."""
        return False

    def sights(self, index: np.ndarray) -> RowSights:
        """See `PagePolicy.sights`."""
        return RowSights(np.zeros_like(index), np.zeros_like(index), index)

    def chosen(self, index: np.ndarray) -> np.ndarray | None:
        """See `PagePolicy.chosen`."""
        return None

    def dead_pages(self, committed: int) -> tuple[int, int]:
        """See `PagePolicy.dead_pages`."""
        return 0, 0

    def kept_pages(self, length: int) -> int:
        """See `PagePolicy.kept_pages`."""
        return pages_for(length)


class WindowWithSinks:
    """The last `window` keys and the first `sinks` (StreamingLLM: Xiao et al. 2023, arXiv 2309.17453).

    Pages are dropped whole, so row t sees the keys from L(t) = 16 * floor((t + 1 - window) / 16) on, between `window`
    and window + 15 of them. The paper counts positions within what is kept: there the row is at sinks + t - L(t). Keys
    of the window are as far from it as in the text; a sink at place j of the text is at place j of what is kept, which
    its rotated key has, so that only the query is rotated anew. While L(t) is 0 nothing is hidden.
    """

    name = "window_sinks"

    def __init__(self, window: int, sinks: int = 4) -> None:
        """Raises ValueError for a window of less than 64 tokens, or sinks that do not fit into the first page."""
        if window < LEAST_WINDOW or not 0 <= sinks <= PAGE_SIZE:
            raise ValueError(f"a window of {window} and {sinks} sinks: at least {LEAST_WINDOW}, at most {PAGE_SIZE}")
        self.window, self.sinks = window, sinks

    @property
    def title(self) -> str:
        return f"the first {self.sinks} and the last {self.window:,} tokens"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WindowWithSinks) and (other.window, other.sinks) == (self.window, self.sinks)

    def __hash__(self) -> int:
        return hash((self.window, self.sinks))

    def first(self, index: np.ndarray) -> np.ndarray:
        """L(t) of each index [T]."""
        return np.maximum(0, index + 1 - self.window) // PAGE_SIZE * PAGE_SIZE

    def restricts(self, stop: int) -> bool:
        """See `PagePolicy.restricts`."""
        return stop - self.window >= PAGE_SIZE

    def sights(self, index: np.ndarray) -> RowSights:
        """See `PagePolicy.sights`."""
        first = self.first(index)
        hides = first > 0
        return RowSights(first, np.where(hides, self.sinks, 0), np.where(hides, self.sinks + index - first, index))

    def chosen(self, index: np.ndarray) -> np.ndarray | None:
        """See `PagePolicy.chosen`."""
        return None

    def dead_pages(self, committed: int) -> tuple[int, int]:
        """See `PagePolicy.dead_pages`: those between the sinks' page and the window of row `committed`."""
        return pages_for(self.sinks), int(self.first(np.array([committed]))[0]) // PAGE_SIZE

    def kept_pages(self, length: int) -> int:
        """See `PagePolicy.kept_pages`: the sinks', and those of the window wherever on its pages it begins."""
        most = pages_for(self.sinks) + pages_for(self.window - 1) + 1
        return min(pages_for(length), most)


class Quest:
    """Rows of the answer read `budget` tokens' worth of pages in each head (Tang et al. 2024, arXiv 2406.10774).

    Rows of the prompt read everything, whenever they are computed; so does a row with no more pages than the budget. A
    row's own page counts. Which pages the others are, attention finds out (engine/attention/quest.py).
    """

    name = "quest"

    def __init__(self, budget: int, prompt_length: int) -> None:
        """Raises ValueError for a budget of less than one page."""
        if budget < PAGE_SIZE:
            raise ValueError(f"a budget of {budget} tokens is less than one page of {PAGE_SIZE}")
        self.pages, self.prompt_length = budget // PAGE_SIZE, prompt_length

    @property
    def title(self) -> str:
        return f"{self.pages * PAGE_SIZE:,} tokens a head (QUEST)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quest) and (other.pages, other.prompt_length) == (self.pages, self.prompt_length)

    def __hash__(self) -> int:
        return hash((self.pages, self.prompt_length))

    def restricts(self, stop: int) -> bool:
        """See `PagePolicy.restricts`."""
        return stop > max(self.prompt_length, self.pages * PAGE_SIZE)

    def sights(self, index: np.ndarray) -> RowSights:
        """See `PagePolicy.sights`."""
        return RowSights(np.zeros_like(index), np.zeros_like(index), index)

    def chosen(self, index: np.ndarray) -> np.ndarray:
        """See `PagePolicy.chosen`."""
        return np.where((index >= self.prompt_length) & (index // PAGE_SIZE >= self.pages), self.pages, 0)

    def dead_pages(self, committed: int) -> tuple[int, int]:
        """See `PagePolicy.dead_pages`: a later row may choose any."""
        return 0, 0

    def kept_pages(self, length: int) -> int:
        """See `PagePolicy.kept_pages`."""
        return pages_for(length)


def beside(policy: PagePolicy) -> PagePolicy:
    """What the rows of another arena see, a draft's or a head's: it keeps no bounds of pages to choose them by."""
    return KeepAll() if isinstance(policy, Quest) else policy


def policy_of(name: str, window: int, budget: int = 1024, prompt_length: int | None = None) -> PagePolicy:
    """The policy of a catalogue value: `window` tokens where it has one, `budget` tokens where rows choose pages.

    Raises ValueError for an unknown name, and for "quest" without the length of the prompt, whose rows do not choose.
    """
    if name == KeepAll.name:
        return KeepAll()
    if name == WindowWithSinks.name:
        return WindowWithSinks(window)
    if name == Quest.name:
        if prompt_length is None:
            raise ValueError("rows choose pages after a prompt: its length is missing")
        return Quest(budget, prompt_length)
    raise ValueError(f"no page policy is called {name!r}")
