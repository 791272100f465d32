"""Page policies: which keys of its sequence a row sees.

A policy is a function of the row's index in the sequence alone, never of how rows were batched. So chunks, prefix hits,
preemption and speculation change nothing, and it is known in advance which pages no later row will read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.cache.pool import PAGE_SIZE, pages_for
from engine.catalogue.exclusions import excluded
from engine.config.model import ModelConfig
from engine.protocol import keys

NO_LIMIT = 1 << 40
LEAST_WINDOW = 64
"""Rows of a drafted tree see their whole committed prefix at least, as far as a window reaches: trees have 64 rows."""


class RowSights(NamedTuple):
    """The keys that rows see, [T] int64 each: those from `first` on and the first `sinks` keys of their sequence.

    The sinks are read with a query that is rotated to `sink_positions`, which is unused without sinks.
    """

    first: np.ndarray
    sinks: np.ndarray
    sink_positions: np.ndarray


class SparseReads(NamedTuple):
    """Share of layers whose rows read all keys, and query heads per KV head, for a policy whose rows choose pages.

    Each of these heads chooses pages of its own.
    """

    dense: float = 1.0
    heads: int = 1


def keys_read(policy: PagePolicy, stop: int, sparse: SparseReads) -> float:
    """Tokens' worth of keys and values, of all layers, that the row before ``stop`` reads; bounds of pages included."""
    if not policy.restricts(stop):
        return stop
    index = np.array([stop - 1])
    first, sinks, _ = policy.sights(index)
    seen = stop - int(first[0]) + int(sinks[0])
    chosen = policy.chosen(index)
    pages = 0 if chosen is None else int(chosen[0])
    if not pages:
        return seen
    # A page's bounds are a lowest and a highest key: as much as one token's key and value.
    return sparse.dense * seen + (1 - sparse.dense) * (pages_for(stop) + pages * PAGE_SIZE * sparse.heads)


class PagePolicy:
    """Hides keys from rows, and lets pages go. This one does neither; the others change what they must."""

    name: str
    """Its value in the catalogue."""
    title: str
    """Name for people: "all pages"."""
    longest_chunk = NO_LIMIT
    """The most rows of a sequence in one step: pages that die are freed only between steps."""
    branches = True
    """True if draft tokens may be trees."""

    @property
    def companion(self) -> PagePolicy:
        """The policy for the arena of a draft model or head, which keeps no page bounds."""
        return self

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def refuses(self, config: ModelConfig) -> str:
        """Reason a model cannot be served with this policy, a sentence for a person; empty if it can."""
        return excluded(config, keys.PAGE_POLICY, self.name)

    def restricts(self, stop: int) -> bool:
        """Return True if any row with an index below `stop` does not see all keys before it."""
        return False

    def sights(self, index: np.ndarray) -> RowSights:
        """Keys that the rows with these indices [T] see."""
        return RowSights(np.zeros_like(index), np.zeros_like(index), index)

    def chosen(self, index: np.ndarray) -> np.ndarray | None:
        """Number of the visible pages that each head reads, [T] int64, 0 for all of them; None: every row reads all of
        them."""
        return None

    def dead_pages(self, committed: int) -> tuple[int, int]:
        """Pages [a, b) of a sequence that no row with an index >= `committed` will read; a >= b: none."""
        return 0, 0

    def kept_pages(self, length: int) -> int:
        """The most pages that a sequence of `length` tokens needs while it grows by one token a step."""
        return pages_for(length)

    def shareable(self, known: int) -> int:
        """Number of the first `known` tokens of a sequence whose keys and values equal what any other would compute."""
        return known


class KeepAll(PagePolicy):
    """Every row sees all keys before it."""

    name = "keep_all"
    title = "all pages"


KEEP_ALL = KeepAll()


class WindowWithSinks(PagePolicy):
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
        self.title = f"the first {sinks} and the last {window:,} tokens"
        self.longest_chunk = max(PAGE_SIZE, window // 4)

    def first(self, index: np.ndarray) -> np.ndarray:
        """L(t) of each index [T]."""
        return np.maximum(0, index + 1 - self.window) // PAGE_SIZE * PAGE_SIZE

    def shareable(self, known: int) -> int:
        """Implements `PagePolicy.shareable`: 0, since a window's pages have gaps."""
        return 0

    def restricts(self, stop: int) -> bool:
        """Implements `PagePolicy.restricts`."""
        return stop - self.window >= PAGE_SIZE

    def sights(self, index: np.ndarray) -> RowSights:
        """Implements `PagePolicy.sights`."""
        first = self.first(index)
        hides = first > 0
        return RowSights(first, np.where(hides, self.sinks, 0), np.where(hides, self.sinks + index - first, index))

    def dead_pages(self, committed: int) -> tuple[int, int]:
        """Implements `PagePolicy.dead_pages`: pages between the sinks' page and the window of row `committed`."""
        return pages_for(self.sinks), int(self.first(np.array([committed]))[0]) // PAGE_SIZE

    def kept_pages(self, length: int) -> int:
        """Implements `PagePolicy.kept_pages`: the sinks' pages, and those of the window wherever on a page it
        begins."""
        most = pages_for(self.sinks) + pages_for(self.window - 1) + 1
        return min(pages_for(length), most)
