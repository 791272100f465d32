"""Recent tokens with pages of their own, in a second pool, where a cache packs the others.

Recent pages are handed out with the rows, given back as what they hold is packed, kept as snapshots when a text ends,
shared by those who go on from there and copied before a write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.cache.groups.base import GRACE, CacheGroup, SequencePart
from engine.cache.pool import PAGE_SIZE, PagePool, pages_for
from engine.cache.prefix.radix import PrefixTree
from engine.cache.prefix.snapshots import Hit, Snapshots
from engine.cache.stores.packed import CHANNEL_GROUP
from engine.cache.stores.recent import packed_until, recent_span
from engine.cache.text import CachedText
from engine.cache.types import Content, OffloadedPages, Tier


class ResidualPart(SequencePart):
    """``table`` has, by place in the sequence, the pages of tokens that are not packed, and 0 elsewhere."""

    __slots__ = ("group", "table")
    table: list[int]

    def __init__(self, group: ResidualGroup) -> None:
        self.group = group
        self.table = []

    # --- it comes ------------------------------------------------------------------------------------------------

    def _hit(self, cache: CachedText, tokens: int, packed: int) -> Hit | None:
        """Longest reuse, of no more than ``tokens`` tokens, by a snapshot and the first ``packed`` tokens before it."""
        return self.group.snapshots.find(cache.namespace, cache.keys(tokens), cache.identity(tokens), packed)

    def longest(self, cache: CachedText, tokens: int, pages: Sequence[int]) -> int:
        """Implements :meth:`SequencePart.longest`."""
        hit = self._hit(cache, tokens, len(pages) * PAGE_SIZE)
        return 0 if hit is None else hit.tokens

    def open(self, cache: CachedText) -> None:
        """Implements :meth:`SequencePart.open`."""
        hit = None if self.table else self._hit(cache, cache.num_computed, self.group.packed(cache.num_computed))
        if hit is not None:
            self.group.pool.retain(hit.pages, cache.owner)
            self.table[:] = [0] * (hit.packed // PAGE_SIZE) + hit.pages
            self.group.snapshots.touch(hit.snapshot)

    def crowds(self) -> bool:
        """Implements :meth:`SequencePart.crowds`: its recent pages would serve rows."""
        return bool(self.table)

    # --- it runs -------------------------------------------------------------------------------------------------

    def fits(self, cache: CachedText, rows: int) -> bool:
        """Implements :meth:`SequencePart.fits`: there are recent pages for ``rows`` more rows."""
        missing, free = self._missing(cache, rows) + self._must_copy(cache), self.group.pool.free_count
        return missing <= free or missing <= free + self.group.snapshots.evictable

    def allocate(self, cache: CachedText, rows: int) -> None:
        """Implements :meth:`SequencePart.allocate`."""
        group, table = self.group, self.table
        first, stop = recent_span(cache.num_computed, rows, group.residual)
        group.snapshots.make_room(self._missing(cache, rows))
        table.extend([0] * (stop - len(table)))
        for place in range(first, stop):
            if not table[place]:
                (table[place],) = group.pool.allocate(1, cache.owner)
        self._own(cache)

    def _missing(self, cache: CachedText, rows: int) -> int:
        first, stop = recent_span(cache.num_computed, rows, self.group.residual)
        gaps = sum(1 for page in self.table[first:stop] if not page)
        return gaps + max(0, stop - max(first, len(self.table)))

    def _next_page(self, cache: CachedText) -> int:
        at = cache.num_computed // PAGE_SIZE
        return self.table[at] if at < len(self.table) else 0

    def _must_copy(self, cache: CachedText) -> bool:
        """Return True if another sequence refers to the page of the next row. A snapshot that does can be evicted
        instead."""
        page = self._next_page(cache)
        return page > 0 and self.group.pool.refs(page) - self.group.snapshots.refs(page) > 1

    def _own(self, cache: CachedText) -> None:
        group, pool, page = self.group, self.group.pool, self._next_page(cache)
        if not page or pool.refs(page) == 1:
            return
        if not pool.free_count and not self._must_copy(cache) and not group.snapshots.evictable:
            group.snapshots.let_go(page)
            return
        group.snapshots.make_room(1)
        if pool.refs(page) == 1:  # it was given up for the room
            return
        (copy,) = pool.allocate(1, cache.owner)
        group.content.copy_page(page, copy)
        pool.release([page], cache.owner)
        self.table[cache.num_computed // PAGE_SIZE] = copy

    def shed(self, cache: CachedText) -> None:
        """Implements :meth:`SequencePart.shed`: releases pages of tokens that are packed by now, and those after the
        last token."""
        table = self.table
        first, stop = recent_span(cache.num_computed, 0, self.group.residual)
        dead = [page for page in (*table[:first], *table[stop:]) if page]
        if dead:
            self.group.pool.release(dead, cache.owner)
        table[:first] = [0] * min(first, len(table))
        del table[stop:]

    # --- it goes -------------------------------------------------------------------------------------------------

    def commit(self, cache: CachedText, before: int, ended: bool) -> None:
        """Implements :meth:`SequencePart.commit`: takes a snapshot where the sequence ended, and where its prompt does:
        of what the next rows would read unpacked, and a little before where that is still there."""
        computed = cache.num_computed
        if cache.namespace is None or not self.table or not (ended or computed == cache.prompt_length):
            return
        for back in (GRACE, 1, 0):
            first = packed_until(computed - 1 - back, self.group.residual)
            pages = self.table[first // PAGE_SIZE : pages_for(computed)]
            if pages and 0 not in pages and first + len(pages) * PAGE_SIZE >= computed:
                text = cache.identity(computed, first)
                self.group.snapshots.keep(cache.namespace, cache.keys(first), text, pages)
                return

    def kept(self, cache: CachedText, tokens: int) -> list[int]:
        """Implements :meth:`SequencePart.kept`."""
        hit = self._hit(cache, tokens, self.group.packed(tokens))
        return hit.pages if hit is not None and hit.tokens == tokens else []

    def keep_at(self, cache: CachedText, tokens: int, asked: bool) -> None:
        """Implements :meth:`SequencePart.keep_at`."""
        first = self.group.packed(tokens)
        pages = self.table[first // PAGE_SIZE : tokens // PAGE_SIZE]
        if cache.namespace is not None and 0 not in pages:
            text = cache.identity(tokens, first)
            self.group.snapshots.keep(cache.namespace, cache.keys(first), text, pages, asked)

    def close(self, cache: CachedText) -> None:
        """Implements :meth:`SequencePart.close`."""
        self.group.pool.release_all(cache.owner)
        self.table.clear()

    # --- it waits in a tier below --------------------------------------------------------------------------------

    def offloaded(self, cache: CachedText) -> list[int]:
        """Implements :meth:`SequencePart.offloaded`."""
        first, stop = recent_span(cache.num_computed, 0, self.group.residual)
        return self.table[first:stop]

    def prepare(self, cache: CachedText) -> bool:
        """Implements :meth:`SequencePart.prepare`."""
        self.allocate(cache, 0)
        return True


class ResidualGroup(CacheGroup[ResidualPart]):
    """Owns the pages of the second pool that sequences and snapshots hold."""

    anywhere, packs = False, True

    def __init__(self, pool: PagePool, residual: int, content: Content, tier: Tier | None = None) -> None:
        """``residual`` is how many stay unpacked, ``tier`` is for what ``content`` has of ``pool``."""
        super().__init__(pool)
        self.residual, self.content, self.tier = residual, content, tier

    def join(self, tree: PrefixTree, packed: Callable[[int], int]) -> None:
        """Implements :meth:`CacheGroup.join`."""
        self.snapshots = Snapshots(self.pool, self.residual, lambda name, keys: tree.matched(name, keys) == len(keys))

    def new(self, cache: CachedText) -> ResidualPart:
        """Implements :meth:`CacheGroup.new`."""
        return ResidualPart(self)

    def packed(self, tokens: int) -> int:
        """Implements :meth:`CacheGroup.packed`: B(n - 1), packed for good."""
        return packed_until(tokens - 1, self.residual)

    @property
    def version(self) -> int:
        """Implements :attr:`CacheGroup.version`."""
        return self.snapshots.version

    @property
    def most_rows(self) -> int:
        """Implements :attr:`CacheGroup.most_rows`."""
        return PAGE_SIZE * max(1, self.pool.total - 1 - (self.residual + CHANNEL_GROUP) // PAGE_SIZE)

    @property
    def snapshot_pages(self) -> int:
        """Implements :attr:`CacheGroup.snapshot_pages`."""
        return self.snapshots.pages

    def saved_pages(self, tokens: int) -> int:
        """Implements :meth:`CacheGroup.saved_pages`."""
        return pages_for(tokens) - self.packed(tokens) // PAGE_SIZE

    def adopt(self, cache: CachedText, tokens: int, held: OffloadedPages) -> None:
        """Implements :meth:`CacheGroup.adopt`: brings them to the device at once, if there is room."""
        first, part = self.packed(tokens), self.of(cache)
        if part.kept(cache, tokens) or self.tier is None or not self.snapshots.make_room(self.saved_pages(tokens)):
            return
        pages = self.pool.allocate(self.saved_pages(tokens), cache.owner)
        if self.tier.take(held, pages):
            self.snapshots.keep(cache.namespace, cache.keys(first), cache.identity(tokens, first), pages)
        self.pool.release(pages, cache.owner)

    def admits(self, cache: CachedText, running: Sequence[CachedText], chunk: int) -> bool:
        """Implements :meth:`CacheGroup.admits`: there are recent pages for its rows now, and for all sequences at
        their longest."""
        if not self.of(cache).fits(cache, min(cache.pending, cache.chunk(chunk))):
            return not running  # a picture that never finds room is told so, rather than waiting in others' way
        if not running:
            return True
        lacking = 0
        for each in (*running, cache):
            table = self.of(each).table
            rows = self.residual + CHANNEL_GROUP + min(each.chunk(min(chunk, self.most_rows)), each.pending)
            most = min(pages_for(len(each.tokens) + 1), pages_for(rows) + 1)
            lacking += max(0, most - len(table) + table.count(0))
        return lacking <= self.pool.free_count + self.snapshots.evictable

    def will_find(self, pages: int, other: CachedText) -> bool:
        """Implements :meth:`CacheGroup.will_find`: it can reuse the snapshot of the other's prompt, or one before."""
        tokens = pages * PAGE_SIZE
        ends = tokens > other.prompt_length - GRACE - PAGE_SIZE
        return ends or any(part.stops_at(tokens) for part in other.parts)

    def check(self, idle: bool = False) -> None:
        """Implements :meth:`CacheGroup.check`."""
        super().check(idle)
        self.snapshots.check()
