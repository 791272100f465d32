"""Sequences whose layers with a sliding window hold the tokens in it alone, in slots (`engine.cache.slots`).

A slot is handed out with the rows and given back as soon as no row to come sees it. A text that begins as another did
goes on from the last place before which the window's slots are still there.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.cache.policies import NO_LIMIT
from engine.cache.pool import PAGE_SIZE, PagePool, pages_for
from engine.cache.prefix.radix import PrefixTree
from engine.cache.sequences import Content, KVCacheManager, NewSequence, SequenceCache, Swaps
from engine.cache.slots import WindowSlots, first_seen
from engine.cache.types import TREE, OffloadedPages, Tier


class WindowedManager(KVCacheManager):
    """Owns every slot, too, that sequences and the tree hold. ``windowed`` copies what slots hold."""

    def __init__(
        self,
        slots: WindowSlots,
        windowed: Content,
        pool: PagePool,
        tree: PrefixTree,
        content: Content,
        tier: Tier | None,
        swaps: Swaps,
    ) -> None:
        super().__init__(pool, tree, content, tier, swaps)
        self.slots, self.windowed = slots, windowed
        tree.freed = slots.drop

    def new(self, sequence: NewSequence) -> WindowedCache:
        """Implements :meth:`KVCacheManager.new`."""
        return WindowedCache(self, sequence)

    @property
    def version(self) -> int:
        """Implements :attr:`KVCacheManager.version`."""
        return self.tree.version + self.slots.version

    @property
    def most_rows(self) -> int:
        """Implements :attr:`KVCacheManager.most_rows`: rows that have slots beside those of the window, which begins
        anywhere on a page, and of a copy."""
        if self.slots.pool.total >= self.pool.total:
            return NO_LIMIT
        return PAGE_SIZE * max(1, self.slots.pool.total - 2 - pages_for(self.slots.window - 1))

    @property
    def snapshot_pages(self) -> int:
        """Implements :attr:`KVCacheManager.snapshot_pages`."""
        return self.slots.kept

    def admits(self, cache: SequenceCache, running: Sequence[SequenceCache], chunk: int) -> bool:
        """Implements :meth:`KVCacheManager.admits`: there are slots for its rows, and for all sequences at their
        longest."""
        lacking = 1
        for each in (*running, cache):
            assert isinstance(each, WindowedCache)
            rows = min(each.chunk(min(chunk, self.most_rows)), each.pending)
            most = min(pages_for(len(each.tokens) + 1), pages_for(self.slots.window - 1 + rows) + 1)
            lacking += max(0, most - each.slots_held)
        return not running or not self.slots.lacks(lacking)

    def check(self, idle: bool = False) -> None:
        """Implements :meth:`KVCacheManager.check`."""
        self.slots.check()
        strays = [owner for owner in self.slots.pool.owners() if owner != TREE]
        assert not idle or not strays, f"slots are held for {strays}, and nobody runs"


class WindowedCache(SequenceCache):
    """``table`` has the slot of each page that a row to come may see in a window, and 0 elsewhere.

    Invariants: it refers once to each of these slots, and there is none before the page ``begin``; from there to
    ``_whole`` no page lacks its slot.
    """

    __slots__ = ("_goal", "_whole", "begin", "table")
    manager: WindowedManager

    def __init__(self, manager: WindowedManager, sequence: NewSequence) -> None:
        super().__init__(manager, sequence)
        self.table: list[int] = []
        self.begin = self._whole = 0
        self._goal = -1  # tokens that are to come back from a tier below

    @property
    def more_pages(self) -> tuple[list[int], ...]:
        """Implements :attr:`SequenceCache.more_pages`."""
        return (self.table,)

    @property
    def slots_held(self) -> int:
        """Entries of the table, where it has them."""
        return len(self.table) - self.begin

    @property
    def _first(self) -> int:
        """The page of the first token that its next row sees."""
        return first_seen(self.num_computed, self.manager.slots.window)

    # --- it comes ------------------------------------------------------------------------------------------------

    def _look_up(self) -> int:
        pages = self.manager.tree.pages_of(self.namespace, self.keys(self.reusable))
        return self.manager.slots.longest(pages) * PAGE_SIZE

    def _open(self) -> None:
        super()._open()
        known = self.manager.tree.pages_of(self.namespace, self.keys(self.reusable))
        if len(known) > self.shared and not known[self.shared]:
            self._hold()  # what follows in a tier below decides where it goes on
        else:
            self._go_back()

    def _fork(self) -> bool:
        if not super()._fork():
            return False
        if self.manager.slots.covered(self.pages, self.num_computed):
            self._hold()
            return True
        self.close()  # the other has gone on, and given up what this one would read
        return False

    def _go_back(self) -> None:
        """To the last place, among those that were found, before which the window's slots are there."""
        slots = self.manager.slots
        if not slots.covered(self.pages, self.num_computed):
            count = slots.longest(self.pages[: self.shared])
            if count == 0:
                self.close()
                return
            self.shrink(count)
            self._share(self.manager.tree.match(self.namespace, self.keys(count * PAGE_SIZE)).node, count)
            self.num_computed = count * PAGE_SIZE
            self.drafts = self.drafts.at_most(self.num_computed)
        self._hold()

    def _hold(self) -> None:
        """Refer to the slots, as far as there are some, of what the next row sees; and to no others."""
        slots, first = self.manager.slots, self._first
        self._pass(first)
        self.begin, self._whole = min(first, len(self.pages)), 0
        self.table.extend([0] * (len(self.pages) - len(self.table)))
        for place in range(self.begin, len(self.pages)):
            page = self.pages[place]
            if page and not self.table[place] and slots.of_page[page]:
                self.table[place] = slots.hold(page, self.owner)

    def take_less(self) -> bool:
        """Implements :meth:`SequenceCache.take_less`."""
        if not super().take_less():
            return False
        self._go_back()
        return True

    def _restore(self) -> None:
        keys = self.keys(self.reusable)
        before, self._goal = self.shared, self.manager.tree.matched(self.namespace, keys) * PAGE_SIZE
        super()._restore()
        self._goal = -1
        self._release_unfilled()
        self.manager.slots.keep(self.pages[before : self.shared])
        self._go_back()

    def _grow(self, pages: int) -> None:
        """While pages come back from a tier below, those before its goal take their slots first."""
        before = len(self.pages)
        super()._grow(pages)
        if self._goal >= 0:
            slots = self.manager.slots
            self.table.extend([0] * (len(self.pages) - len(self.table)))
            for place in range(max(before, first_seen(self._goal, slots.window)), len(self.pages)):
                if not slots.lacks(1):
                    self.table[place] = slots.hold(self.pages[place], self.owner)

    def _release_unfilled(self) -> None:
        slots = self.manager.slots
        places = [place for place, page in enumerate(self.pages) if page in slots.unfilled and self.table[place]]
        slots.let_go([self.table[place] for place in places], self.owner, passed=True)
        for place in places:
            self.table[place] = 0

    # --- it runs -------------------------------------------------------------------------------------------------

    def fits(self, rows: int) -> bool:
        """Implements :meth:`SequenceCache.fits`."""
        return super().fits(rows) and not self.manager.slots.lacks(self._missing(rows))

    def _missing(self, rows: int) -> int:
        """Slots still to be taken for ``rows`` more rows."""
        table, first, stop = self.table, max(self._first, self._whole), pages_for(self.num_computed + rows)
        gaps = sum(1 for place in range(first, min(stop, len(table))) if self._wants(place))
        return gaps + max(0, stop - max(first, len(table))) + self._must_copy()

    def _wants(self, place: int) -> bool:
        """Return True if a page lacks its slot; one that no row will read again needs none."""
        return not self.table[place] and (place >= len(self.pages) or self.pages[place] > 0)

    def allocate(self, rows: int) -> None:
        """Implements :meth:`SequenceCache.allocate`."""
        super().allocate(rows)
        self._take_slots(pages_for(self.num_computed + rows))

    def _take_slots(self, stop: int) -> None:
        self.table.extend([0] * (stop - len(self.table)))
        wanted = [place for place in range(max(self._first, self._whole), stop) if self._wants(place)]
        self._whole = max(self._whole, stop)
        self.manager.slots.make_room(len(wanted))
        for place in wanted:
            self.table[place] = self.manager.slots.hold(self.pages[place], self.owner)

    def _own(self) -> None:
        at = self.num_computed // PAGE_SIZE
        copies = self._must_copy()
        super()._own()
        old = self.table[at] if copies and at < len(self.table) else 0
        if old:
            slots = self.manager.slots
            self.table[at] = slots.hold(self.pages[at], self.owner)
            self.manager.windowed.copy_page(old, self.table[at])
            slots.let_go([old], self.owner, passed=False)

    def shed(self) -> None:
        """Implements :meth:`SequenceCache.shed`, and lets go of the slots that are out of every window by now."""
        first, stop = self.dead_pages
        super().shed()
        dead = [place for place in range(max(first, self.begin), min(stop, len(self.table))) if self.table[place]]
        self.manager.slots.let_go([self.table[place] for place in dead], self.owner, passed=True)
        for place in dead:
            self.table[place] = 0
        self._pass(self._first)

    def _pass(self, first: int) -> None:
        """Give back the slots before a page."""
        if first > self.begin:
            gone = [slot for slot in self.table[self.begin : first] if slot]
            self.manager.slots.let_go(gone, self.owner, passed=True)
            self.table[self.begin : first] = [0] * (min(first, len(self.table)) - self.begin)
            self.begin = min(first, len(self.table))

    def shrink(self, keep: int) -> None:
        """Implements :meth:`SequenceCache.shrink`."""
        gone = [slot for slot in self.table[keep:] if slot]
        self.manager.slots.let_go(gone, self.owner, passed=False)
        del self.table[keep:]
        self.begin, self._whole = min(self.begin, len(self.table)), min(self._whole, len(self.table))
        super().shrink(keep)

    # --- it goes -------------------------------------------------------------------------------------------------

    def _commit(self, tokens: int) -> None:
        """Implements :meth:`SequenceCache._commit`: pages that the tree takes over keep their slots. Where the tree has
        the same text without slots, its own pages get them."""
        before, pages = self.shared, self.pages.copy()
        super()._commit(tokens)
        slots = self.manager.slots
        for place in range(before, self.shared):
            old, now = pages[place], self.pages[place]
            held = self.table[place] if old != now and place < len(self.table) else 0
            if held and slots.of_page[now]:
                self.table[place] = slots.hold(now, self.owner)
                slots.let_go([held], self.owner, passed=False)
            elif held:
                slots.pass_on(old, now)
        slots.keep(self.pages[before : self.shared])

    # --- it waits in a tier below --------------------------------------------------------------------------------

    def _take(self, held: OffloadedPages) -> bool:
        slots, stop = self.manager.slots, pages_for(self.num_computed)
        if slots.lacks(stop - self._first):
            self._drop(held)
            return False
        self.begin = self._first
        self._take_slots(stop)
        if super()._take(held) and not slots.unfilled:
            return True
        slots.let_go([slot for slot in self.table if slot], self.owner, passed=True)
        self.table.clear()
        self.begin = self._whole = 0
        return False
