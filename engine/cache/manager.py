"""Pages of all sequences and of the prefix tree, and what layers keep beside them (`engine.cache.groups`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine.cache.groups.base import AnyGroup, StateCounts
from engine.cache.policies import NO_LIMIT
from engine.cache.pool import PagePool
from engine.cache.prefix.radix import PrefixTree
from engine.cache.text import CachedText
from engine.cache.types import Content, Tier

EVICTED_AT_ONCE = 16
"""Pages given up at the least when one is needed: fewer, longer pieces go to the tier below."""


class Offload(NamedTuple):
    """Pages that go to a tier below, or come back from it."""

    tier: Tier
    pages: Sequence[int]


Swaps = Callable[[CachedText, Sequence[Offload]], bool]
"""``swaps(cache, parts)``: whether a preempted sequence with these pages, those of the pool first, is kept in tiers
below rather than computed again."""


class KVCacheManager:
    """Owns every page that sequences and the prefix tree hold, and the groups."""

    def __init__(
        self,
        pool: PagePool,
        tree: PrefixTree | None = None,
        content: Content | None = None,
        tier: Tier | None = None,
        swaps: Swaps = lambda cache, parts: False,
        groups: Sequence[AnyGroup] = (),
    ) -> None:
        """``groups`` in the order of their layers' page tables; one that packs is the first."""
        self.pool, self.content, self.tier, self.swaps = pool, content, tier, swaps
        self.tree = tree or PrefixTree(pool)
        self.groups = tuple(groups)
        self.anywhere, self.packs = all(group.anywhere for group in groups), any(group.packs for group in groups)
        for place, group in enumerate(groups):
            group.place = place
            group.join(self.tree, self.packed)

    @property
    def room(self) -> int:
        """Pages that are free now or that the tree would give up."""
        return self.pool.free_count + self.tree.evictable

    @property
    def version(self) -> int:
        """Changes with whatever can change what a text finds."""
        return self.tree.version + sum(group.version for group in self.groups)

    @property
    def most_rows(self) -> int:
        """Rows of one sequence for which a step always has room outside of its pages, if no other sequence runs."""
        return min((group.most_rows for group in self.groups), default=NO_LIMIT)

    @property
    def snapshot_pages(self) -> int:
        """Pages outside of the pool that are kept for texts that ended."""
        return sum(group.snapshot_pages for group in self.groups)

    @property
    def states(self) -> StateCounts:
        """States outside of the pool."""
        counts = [group.states for group in self.groups]
        return StateCounts(sum(each.held for each in counts), sum(each.kept for each in counts))

    def packed(self, tokens: int) -> int:
        """Tokens that are in pages of the pool when the first ``tokens`` of a text are computed."""
        return self.groups[0].packed(tokens) if self.packs else tokens

    def admits(self, cache: CachedText, running: Sequence[CachedText], chunk: int) -> bool:
        """Return True if an opened sequence, read in chunks, has room outside of the pages to run with the others."""
        return all(group.admits(cache, running, chunk) for group in self.groups)

    def will_find(self, pages: int, other: CachedText) -> bool:
        """Return True if a text that shares its first ``pages`` pages with ``other`` can reuse them once ``other`` is
        read."""
        return all(group.will_find(pages, other) for group in self.groups)

    def take(self, owner: tuple[str, int], pages: int) -> list[int]:
        """Allocate ``pages`` pages of the pool; the tree evicts as many as are missing. There must be room."""
        short = pages - self.pool.free_count
        while short > 0 and self.tree.evict(max(short, EVICTED_AT_ONCE)):
            short = pages - self.pool.free_count
        return self.pool.allocate(pages, owner)

    def check(self, idle: bool = False) -> None:
        """Check what is counted outside of the pool and the tree; when ``idle``, that no sequence holds anything.

        Raises AssertionError.
        """
        for group in self.groups:
            group.check(idle)
