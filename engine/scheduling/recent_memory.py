"""The pages of a second pool, which hold each sequence's recent tokens where a cache packs the others (KIVI).

They are handed out with the rows, given back as what they hold is packed, kept as snapshots when a text ends, shared
by those who go on from there and copied before a write. Pure but for the two objects that move content.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol

from engine.cache.packed import CHANNEL_GROUP
from engine.cache.pool import PAGE_SIZE, PagePool, pages_for
from engine.cache.radix import PrefixTree
from engine.cache.radix_node import TREE, Held, Tier
from engine.cache.recent import packed_until, recent_span
from engine.cache.snapshots import Hit, Snapshots
from engine.scheduling.policy import S, keys_of

GRACE = 16
"""Tokens at the end of a text that may turn out otherwise in the next one, as templates write a prompt's end in
another way once an answer follows, while what is before them is found."""


class Content(Protocol):
    """What pages hold, in every arena."""

    def copy_page(self, src: int, dst: int) -> None:
        """Copy one page."""


@dataclass(eq=False, slots=True)
class HeldWithRecent:
    """A preempted sequence in a tier below: its packed pages (None where it had none) and its recent ones."""

    main: Held | None
    recent: Held

    @property
    def place(self) -> str:
        return self.recent.place


class RecentMemory(Generic[S]):
    """Owns every page of the second pool that sequences and snapshots hold."""

    def __init__(
        self,
        pool: PagePool,
        residual: int,
        content: Content,
        tree: PrefixTree,
        tier: Tier | None = None,
    ) -> None:
        """``residual`` is KIVI's R; ``tree`` has the packed pages, ``tier`` is for what ``content`` has of ``pool``."""
        self.pool, self.residual, self.content, self.tree, self.tier = pool, residual, content, tree, tier
        self.snapshots = Snapshots(pool, residual, lambda name, keys: tree.matched(name, keys) == len(keys))

    @property
    def most_rows(self) -> int:
        """Rows of one sequence in a step that the pool always has room for, if nobody else runs."""
        return PAGE_SIZE * max(1, self.pool.total - 1 - (self.residual + CHANNEL_GROUP) // PAGE_SIZE)

    def packed(self, sequence: S) -> int:
        """B(n - 1): how many of the n computed tokens are packed for good."""
        return packed_until(sequence.num_computed - 1, self.residual)

    # --- it runs -------------------------------------------------------------------------------------------------

    def lacks(self, sequence: S, rows: int) -> bool:
        """Whether there are too few pages for so many more rows."""
        missing = self._missing(sequence, rows) + self._must_copy(sequence)
        free = self.pool.free_count
        return missing > free and missing > free + self.snapshots.evictable

    def crowded(self, sequences: Iterable[S], chunk: int) -> bool:
        """Whether there are too few pages for all of them at their longest, read in chunks."""
        lacking = 0
        for each in sequences:
            rows = self.residual + CHANNEL_GROUP + min(chunk, self.most_rows, each.pending)
            most = min(pages_for(each.known + 1), pages_for(rows) + 1)
            lacking += max(0, most - len(each.recent) + each.recent.count(0))
        return lacking > self.pool.free_count + self.snapshots.evictable

    def _missing(self, sequence: S, rows: int) -> int:
        first, stop = recent_span(sequence.num_computed, rows, self.residual)
        gaps = sum(1 for page in sequence.recent[first:stop] if not page)
        return gaps + max(0, stop - max(first, len(sequence.recent)))

    def _must_copy(self, sequence: S) -> bool:
        """Whether another sequence refers to the page of the next row; a snapshot that does can be given up."""
        page = self._next_page(sequence)
        return page > 0 and self.pool.refs(page) - self.snapshots.refs(page) > 1

    @staticmethod
    def _next_page(sequence: S) -> int:
        at = sequence.num_computed // PAGE_SIZE
        return sequence.recent[at] if at < len(sequence.recent) else 0

    def grow(self, sequence: S, rows: int) -> None:
        """Let the sequence hold pages of its own for so many more rows (copy-on-write). There is room."""
        first, stop = recent_span(sequence.num_computed, rows, self.residual)
        self.snapshots.make_room(self._missing(sequence, rows))
        table = sequence.recent
        table.extend([0] * (stop - len(table)))
        for place in range(first, stop):
            if not table[place]:
                (table[place],) = self.pool.allocate(1, sequence.owner)
        self._own(sequence)

    def _own(self, sequence: S) -> None:
        page = self._next_page(sequence)
        if not page or self.pool.refs(page) == 1:
            return
        if not self.pool.free_count and not self._must_copy(sequence) and not self.snapshots.evictable:
            self.snapshots.let_go(page)
            return
        self.snapshots.make_room(1)
        if self.pool.refs(page) == 1:  # it was given up for the room
            return
        (copy,) = self.pool.allocate(1, sequence.owner)
        self.content.copy_page(page, copy)
        self.pool.release([page], sequence.owner)
        sequence.recent[sequence.num_computed // PAGE_SIZE] = copy

    def shed(self, sequence: S) -> None:
        """Give back the pages of tokens that are packed by now, and those after the last."""
        first, stop = recent_span(sequence.num_computed, 0, self.residual)
        table = sequence.recent
        dead = [page for page in (*table[:first], *table[stop:]) if page]
        if dead:
            self.pool.release(dead, sequence.owner)
        table[:first] = [0] * min(first, len(table))
        del table[stop:]

    def close(self, sequence: S) -> None:
        """Give everything back."""
        self.pool.release_all(sequence.owner)
        sequence.recent.clear()

    # --- it ends, and another goes on ----------------------------------------------------------------------------

    def keep(self, sequence: S) -> None:
        """Let a snapshot have what the next rows would read unpacked, and a little before where that is still there."""
        computed = sequence.num_computed
        for back in (GRACE, 1, 0):
            first = packed_until(computed - 1 - back, self.residual)
            pages = sequence.recent[first // PAGE_SIZE : pages_for(computed)]
            if pages and 0 not in pages and first + len(pages) * PAGE_SIZE >= computed:
                tokens = sequence.tokens[first:computed]
                self.snapshots.keep(sequence.namespace, keys_of(sequence, first), tokens, pages)
                return

    def will_find(self, tokens: int, other: S) -> bool:
        """Whether a text that shares so many tokens with another's prompt can begin with the snapshot of its end."""
        return tokens > other.prompt_length - GRACE - PAGE_SIZE

    def look_up(self, sequence: S) -> Hit | None:
        """How much of it a snapshot and the packed pages before it spare, wherever these are; a last row must stay."""
        limit = sequence.known - 1
        keys = keys_of(sequence, limit)
        packed = self.tree.matched(sequence.namespace, keys) * PAGE_SIZE
        return self.snapshots.find(sequence.namespace, keys, sequence.tokens[:limit], packed)

    def open(self, sequence: S) -> None:
        """Give a sequence without pages those of a look-up; packed pages in a tier below are not among them yet."""
        hit = self.look_up(sequence)
        if hit is None:
            return
        match = self.tree.match(sequence.namespace, keys_of(sequence, hit.packed))
        self.tree.lock(match.node)
        self.tree.pool.retain(match.pages, sequence.owner)
        sequence.node, sequence.shared, sequence.pages = match.node, len(match.pages), list(match.pages)
        self.pool.retain(hit.pages, sequence.owner)
        sequence.recent = [0] * (hit.packed // PAGE_SIZE) + hit.pages
        sequence.num_computed, sequence.drafts = hit.tokens, match.drafted.at_most(hit.packed)
        self.snapshots.touch(hit.snapshot)

    # --- it waits in a tier below --------------------------------------------------------------------------------

    def swapped(self, sequence: S) -> tuple[list[int], list[int]]:
        """The pages of both pools that hold what is computed."""
        first, stop = recent_span(sequence.num_computed, 0, self.residual)
        return sequence.pages[:first], sequence.recent[first:stop]

    def put(self, sequence: S, main: Tier) -> Held | None:
        """Copy them to the tiers; None, and nothing is there, without room."""
        pages, recent = self.swapped(sequence)
        if self.tier is None or not recent or 0 in pages or 0 in recent:
            return None
        above = main.put(pages, keep=True) if pages else None
        below = self.tier.put(recent, keep=True) if above is not None or not pages else None
        if below is None:
            if above is not None:
                main.drop(above)
            return None
        return HeldWithRecent(above, below)

    def take(self, held: Held, sequence: S, main: Tier) -> bool:
        """Bring them back to the sequence, which has pages of the first pool; False: they are lost."""
        assert isinstance(held, HeldWithRecent)
        assert self.tier is not None
        self.grow(sequence, 0)
        pages, recent = self.swapped(sequence)
        found = held.main is None or main.take(held.main, pages)
        if not (self.tier.take(held.recent, recent) and found):
            self.close(sequence)
            return False
        return True

    def drop(self, held: Held, main: Tier) -> None:
        """Forget them."""
        assert isinstance(held, HeldWithRecent)
        assert self.tier is not None
        if held.main is not None:
            main.drop(held.main)
        self.tier.drop(held.recent)

    def check(self, idle: bool = False) -> None:
        """Prove that the books agree; when ``idle``, that only snapshots hold pages. Raises AssertionError."""
        self.pool.check()
        self.snapshots.check()
        strays = [owner for owner in self.pool.owners() if owner != TREE]
        assert not idle or not strays, f"recent pages are held for {strays}, and nobody runs"
