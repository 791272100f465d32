"""Sequences whose recent tokens have pages of their own, in a second pool, where a cache packs the others (KIVI).

Recent pages are handed out with the rows, given back as what they hold is packed, kept as snapshots when a text ends,
shared by those who go on from there and copied before a write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.cache.pool import PAGE_SIZE, PagePool, pages_for
from engine.cache.prefix.radix import PrefixTree
from engine.cache.prefix.snapshots import Hit, Snapshots
from engine.cache.sequences import Content, KVCacheManager, NewSequence, SequenceCache, Swaps
from engine.cache.stores.packed import CHANNEL_GROUP
from engine.cache.stores.recent import packed_until, recent_span
from engine.cache.types import TREE, DraftKVLengths, OffloadedPages, Tier

GRACE = 16
"""Tokens at the end of a text that may turn out otherwise in the next one, as templates write a prompt's end in
another way once an answer follows, while what is before them is found."""


@dataclass(eq=False, slots=True)
class HeldWithRecent:
    """A preempted sequence in a tier below: its packed pages (None where it had none) and its recent ones."""

    main: OffloadedPages | None
    recent: OffloadedPages

    @property
    def place(self) -> str:
        return self.recent.place


class RecentPages(NamedTuple):
    """The second pool: ``residual`` is KIVI's R, ``tier`` is for what ``content`` has of ``pool``."""

    pool: PagePool
    residual: int
    content: Content
    tier: Tier | None = None


class ResidualManager(KVCacheManager):
    """Owns every page of the second pool, too, that sequences and snapshots hold."""

    def __init__(
        self, recent: RecentPages, pool: PagePool, tree: PrefixTree, content: Content, tier: Tier | None, swaps: Swaps
    ) -> None:
        super().__init__(pool, tree, content, tier, swaps)
        self.recent, self.residual, self.recent_content, self.recent_tier = recent
        self.snapshots = Snapshots(self.recent, self.residual, lambda name, keys: tree.matched(name, keys) == len(keys))

    def new(self, sequence: NewSequence) -> ResidualCache:
        """Implements :meth:`KVCacheManager.new`."""
        return ResidualCache(self, sequence)

    @property
    def most_rows(self) -> int:
        """Implements :attr:`KVCacheManager.most_rows`."""
        return PAGE_SIZE * max(1, self.recent.total - 1 - (self.residual + CHANNEL_GROUP) // PAGE_SIZE)

    @property
    def snapshot_pages(self) -> int:
        """Implements :attr:`KVCacheManager.snapshot_pages`."""
        return self.snapshots.pages

    @property
    def version(self) -> int:
        """Implements :attr:`KVCacheManager.version`."""
        return self.tree.version + self.snapshots.version

    def admits(self, cache: SequenceCache, running: Sequence[SequenceCache], chunk: int) -> bool:
        """Implements :meth:`KVCacheManager.admits`: there are recent pages for its rows now, and for all sequences at
        their longest."""
        assert isinstance(cache, ResidualCache)
        if cache.lacks_recent(min(cache.pending, cache.chunk(chunk))):
            return not running  # a picture that never finds room is told so, rather than waiting in others' way
        if not running:
            return True
        lacking = 0
        for each in (*running, cache):
            assert isinstance(each, ResidualCache)
            rows = self.residual + CHANNEL_GROUP + min(each.chunk(min(chunk, self.most_rows)), each.pending)
            most = min(pages_for(len(each.tokens) + 1), pages_for(rows) + 1)
            lacking += max(0, most - len(each.recent) + each.recent.count(0))
        return lacking <= self.recent.free_count + self.snapshots.evictable

    def will_find(self, pages: int, other: SequenceCache) -> bool:
        """Implements :meth:`KVCacheManager.will_find`: it can reuse the snapshot of the other's prompt."""
        return pages * PAGE_SIZE > other.prompt_length - GRACE - PAGE_SIZE

    def check(self, idle: bool = False) -> None:
        """Implements :meth:`KVCacheManager.check`."""
        self.recent.check()
        self.snapshots.check()
        strays = [owner for owner in self.recent.owners() if owner != TREE]
        assert not idle or not strays, f"recent pages are held for {strays}, and nobody runs"


class ResidualCache(SequenceCache):
    """``pages`` hold packed tokens; ``recent``, by place in the sequence, those that are not packed, 0 elsewhere."""

    __slots__ = ("recent",)
    manager: ResidualManager

    def __init__(self, manager: ResidualManager, sequence: NewSequence) -> None:
        super().__init__(manager, sequence)
        self.recent: list[int] = []

    @property
    def more_pages(self) -> tuple[list[int], ...]:
        """Implements :attr:`SequenceCache.more_pages`."""
        return (self.recent,)

    @property
    def packs(self) -> bool:
        """Implements :attr:`SequenceCache.packs`."""
        return True

    @property
    def newest_pages(self) -> list[int]:
        """Implements :attr:`SequenceCache.newest_pages`."""
        return self.recent

    @property
    def packed(self) -> int:
        """B(n - 1): how many of the n computed tokens are packed for good."""
        return packed_until(self.num_computed - 1, self.manager.residual)

    # --- it comes ------------------------------------------------------------------------------------------------

    def _hit(self) -> Hit | None:
        """Longest reuse by a snapshot and the packed pages before it, in any tier; at least the last token is computed
        again."""
        limit, manager = len(self.tokens) - 1, self.manager
        keys = self.keys(limit)
        packed = manager.tree.matched(self.namespace, keys) * PAGE_SIZE
        return manager.snapshots.find(self.namespace, keys, self.identity(limit), packed)

    def _look_up(self) -> int:
        hit = self._hit()
        return 0 if hit is None else hit.tokens

    def _open(self) -> None:
        """Packed pages in a tier below are not among those that it begins with yet."""
        hit, manager = self._hit(), self.manager
        if hit is None:
            return
        match = manager.tree.match(self.namespace, self.keys(hit.packed))
        manager.tree.lock(match.node)
        manager.pool.retain(match.pages, self.owner)
        self.node, self.shared, self.pages = match.node, len(match.pages), list(match.pages)
        manager.recent.retain(hit.pages, self.owner)
        self.recent = [0] * (hit.packed // PAGE_SIZE) + hit.pages
        self.num_computed, self.drafts = hit.tokens, match.drafted.at_most(hit.packed)
        manager.snapshots.touch(hit.snapshot)

    def take_less(self) -> bool:
        """Implements :meth:`SequenceCache.take_less`: gives up all that was found, so that its recent pages serve
        rows."""
        if not self.recent or self.held is not None:
            return super().take_less()
        self.close()
        return True

    def _restore(self) -> None:
        tokens, packed = self.num_computed, self.packed
        self._restore_pages(self.keys(packed))
        self.num_computed = tokens
        if len(self.pages) * PAGE_SIZE != packed:
            self.close()  # recent tokens alone are of no use

    # --- it runs -------------------------------------------------------------------------------------------------

    def fits(self, rows: int) -> bool:
        """Implements :meth:`SequenceCache.fits`."""
        return super().fits(rows) and not self.lacks_recent(rows)

    def lacks_recent(self, rows: int) -> bool:
        """Return True if there are too few recent pages for ``rows`` more rows."""
        missing, free = self._missing(rows) + self._must_copy_recent(), self.manager.recent.free_count
        return missing > free and missing > free + self.manager.snapshots.evictable

    def allocate(self, rows: int) -> None:
        """Implements :meth:`SequenceCache.allocate`."""
        super().allocate(rows)
        self._allocate_recent(rows)

    def _allocate_recent(self, rows: int) -> None:
        manager, table = self.manager, self.recent
        first, stop = recent_span(self.num_computed, rows, manager.residual)
        manager.snapshots.make_room(self._missing(rows))
        table.extend([0] * (stop - len(table)))
        for place in range(first, stop):
            if not table[place]:
                (table[place],) = manager.recent.allocate(1, self.owner)
        self._own_recent()

    def _missing(self, rows: int) -> int:
        first, stop = recent_span(self.num_computed, rows, self.manager.residual)
        gaps = sum(1 for page in self.recent[first:stop] if not page)
        return gaps + max(0, stop - max(first, len(self.recent)))

    def _next_page(self) -> int:
        at = self.num_computed // PAGE_SIZE
        return self.recent[at] if at < len(self.recent) else 0

    def _must_copy_recent(self) -> bool:
        """Return True if another sequence refers to the page of the next row. A snapshot that does can be evicted
        instead."""
        page = self._next_page()
        return page > 0 and self.manager.recent.refs(page) - self.manager.snapshots.refs(page) > 1

    def _own_recent(self) -> None:
        manager, pool, page = self.manager, self.manager.recent, self._next_page()
        if not page or pool.refs(page) == 1:
            return
        if not pool.free_count and not self._must_copy_recent() and not manager.snapshots.evictable:
            manager.snapshots.let_go(page)
            return
        manager.snapshots.make_room(1)
        if pool.refs(page) == 1:  # it was given up for the room
            return
        (copy,) = pool.allocate(1, self.owner)
        manager.recent_content.copy_page(page, copy)
        pool.release([page], self.owner)
        self.recent[self.num_computed // PAGE_SIZE] = copy

    def shed(self) -> None:
        """Implements :meth:`SequenceCache.shed`: releases recent pages of tokens that are packed by now, and those
        after the last token."""
        super().shed()
        table = self.recent
        first, stop = recent_span(self.num_computed, 0, self.manager.residual)
        dead = [page for page in (*table[:first], *table[stop:]) if page]
        if dead:
            self.manager.recent.release(dead, self.owner)
        table[:first] = [0] * min(first, len(table))
        del table[stop:]

    # --- it goes -------------------------------------------------------------------------------------------------

    def commit(self, ended: bool = True) -> None:
        """Implements :meth:`SequenceCache.commit`: takes a snapshot where the sequence ended, and where its prompt
        does."""
        self._commit(self.packed)
        if self.namespace is not None and self.recent and (ended or self.num_computed == self.prompt_length):
            self._keep()

    def _keep(self) -> None:
        """Let a snapshot have what the next rows would read unpacked, and a little before where that is still there."""
        computed, manager = self.num_computed, self.manager
        for back in (GRACE, 1, 0):
            first = packed_until(computed - 1 - back, manager.residual)
            pages = self.recent[first // PAGE_SIZE : pages_for(computed)]
            if pages and 0 not in pages and first + len(pages) * PAGE_SIZE >= computed:
                manager.snapshots.keep(self.namespace, self.keys(first), self.identity(computed, first), pages)
                return

    def close(self) -> None:
        """Implements :meth:`SequenceCache.close`."""
        super().close()
        self.manager.recent.release_all(self.owner)
        self.recent.clear()

    # --- it waits in a tier below --------------------------------------------------------------------------------

    def _swapped(self) -> tuple[list[int], list[int]]:
        """The pages of both pools that hold what is computed."""
        first, stop = recent_span(self.num_computed, 0, self.manager.residual)
        return self.pages[:first], self.recent[first:stop]

    def _put(self) -> tuple[OffloadedPages, DraftKVLengths] | None:
        main, recent_tier = self.manager.tier, self.manager.recent_tier
        pages, recent = self._swapped()
        assert main is not None
        if not recent or not self.manager.swaps(self, len(pages), len(recent)):
            return None
        if recent_tier is None or 0 in pages or 0 in recent:
            return None
        above = main.put(pages, keep=True) if pages else None
        below = recent_tier.put(recent, keep=True) if above is not None or not pages else None
        if below is None:
            if above is not None:
                main.drop(above)
            return None
        return HeldWithRecent(above, below), self.drafts.at_most(self.packed)

    def _take(self, held: OffloadedPages) -> bool:
        assert isinstance(held, HeldWithRecent)
        assert self.manager.tier is not None
        assert self.manager.recent_tier is not None
        self._allocate_recent(0)
        pages, recent = self._swapped()
        found = held.main is None or self.manager.tier.take(held.main, pages)
        if not (self.manager.recent_tier.take(held.recent, recent) and found):
            self.manager.recent.release_all(self.owner)
            self.recent.clear()
            return False
        return True

    def _drop(self, held: OffloadedPages) -> None:
        assert isinstance(held, HeldWithRecent)
        assert self.manager.recent_tier is not None
        if held.main is not None:
            super()._drop(held.main)
        self.manager.recent_tier.drop(held.recent)
