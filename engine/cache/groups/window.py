"""Layers with a sliding window, which hold the tokens in it alone, in slots (`engine.cache.slots`).

A slot is handed out with the rows and given back as soon as no row to come sees it. A text that begins as another did
goes on from the last place before which the window's slots are still there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.cache.groups.base import CacheGroup, SequencePart
from engine.cache.policies import NO_LIMIT
from engine.cache.pool import PAGE_SIZE, pages_for
from engine.cache.prefix.radix import PrefixTree
from engine.cache.slots import WindowSlots
from engine.cache.text import CachedText
from engine.cache.types import Content


class WindowPart(SequencePart):
    """``table`` has the slot of each page that a row to come may see in a window, and 0 elsewhere.

    Invariants: it refers once to each of these slots, and there is none before the page ``begin``; from there to
    ``_whole`` no page lacks its slot.
    """

    __slots__ = ("_whole", "begin", "group", "slots", "table")
    table: list[int]

    def __init__(self, group: WindowGroup) -> None:
        self.group, self.slots = group, group.slots
        self.table = []
        self.begin = self._whole = 0

    @property
    def slots_held(self) -> int:
        """Entries of the table, where it has them."""
        return len(self.table) - self.begin

    def _first(self, cache: CachedText) -> int:
        """The first page whose slot the next row wants."""
        return self.slots.first(cache.num_computed)

    # --- it comes ------------------------------------------------------------------------------------------------

    def longest(self, cache: CachedText, tokens: int, pages: Sequence[int]) -> int:
        """Implements :meth:`SequencePart.longest`."""
        return self.slots.longest(pages, tokens)

    def open(self, cache: CachedText) -> None:
        """Refer to the slots, as far as there are some, of what the next row sees; and to no others."""
        first, pages = self._first(cache), cache.pages
        self._pass(cache, first)
        self.begin, self._whole = min(first, len(pages)), 0
        self.table.extend([0] * (len(pages) - len(self.table)))
        for place in range(self.begin, len(pages)):
            page = pages[place]
            if page and not self.table[place] and self.slots.of_page[page]:
                self.table[place] = self.slots.hold(page, cache.owner)

    def grown(self, cache: CachedText, before: int, tokens: int) -> None:
        """Implements :meth:`SequencePart.grown`: those that the row after ``tokens`` tokens sees take their slots."""
        self.table.extend([0] * (len(cache.pages) - len(self.table)))
        for place in range(max(before, self.slots.first(tokens)), len(cache.pages)):
            if not self.slots.lacks(1):
                self.table[place] = self.slots.hold(cache.pages[place], cache.owner)

    def filled(self, cache: CachedText, before: int) -> bool:
        """Implements :meth:`SequencePart.filled`: slots that nothing came along for are given back."""
        slots = self.slots
        places = [place for place, page in enumerate(cache.pages) if page in slots.unfilled and self.table[place]]
        slots.let_go([self.table[place] for place in places], cache.owner, passed=True)
        for place in places:
            self.table[place] = 0
        slots.keep(cache.pages[before : cache.shared])
        return not places

    # --- it runs -------------------------------------------------------------------------------------------------

    def fits(self, cache: CachedText, rows: int) -> bool:
        """Implements :meth:`SequencePart.fits`."""
        return not self.slots.lacks(self._missing(cache, rows))

    def _missing(self, cache: CachedText, rows: int) -> int:
        """Slots still to be taken for ``rows`` more rows."""
        table, first, stop = self.table, max(self._first(cache), self._whole), pages_for(cache.num_computed + rows)
        gaps = sum(1 for place in range(first, min(stop, len(table))) if self._wants(cache, place))
        return gaps + max(0, stop - max(first, len(table))) + cache.must_copy()

    def _wants(self, cache: CachedText, place: int) -> bool:
        """Return True if a page lacks its slot; one that no row will read again needs none."""
        return not self.table[place] and (place >= len(cache.pages) or cache.pages[place] > 0)

    def allocate(self, cache: CachedText, rows: int) -> None:
        """Implements :meth:`SequencePart.allocate`."""
        stop = pages_for(cache.num_computed + rows)
        self.table.extend([0] * (stop - len(self.table)))
        wanted = [place for place in range(max(self._first(cache), self._whole), stop) if self._wants(cache, place)]
        self._whole = max(self._whole, stop)
        self.slots.make_room(len(wanted))
        for place in wanted:
            self.table[place] = self.slots.hold(cache.pages[place], cache.owner)

    def copied(self, cache: CachedText, at: int) -> None:
        """Implements :meth:`SequencePart.copied`: its slot is copied too."""
        old = self.table[at] if at < len(self.table) else 0
        if old:
            self.table[at] = self.slots.hold(cache.pages[at], cache.owner)
            self.group.content.copy_page(old, self.table[at])
            self.slots.let_go([old], cache.owner, passed=False)

    def shed(self, cache: CachedText) -> None:
        """Implements :meth:`SequencePart.shed`: lets go of the slots that are out of every window by now."""
        first, stop = cache.dead_pages
        dead = [place for place in range(max(first, self.begin), min(stop, len(self.table))) if self.table[place]]
        self.slots.let_go([self.table[place] for place in dead], cache.owner, passed=True)
        for place in dead:
            self.table[place] = 0
        self._pass(cache, self._first(cache))

    def _pass(self, cache: CachedText, first: int) -> None:
        """Give back the slots before a page."""
        if first > self.begin:
            gone = [slot for slot in self.table[self.begin : first] if slot]
            self.slots.let_go(gone, cache.owner, passed=True)
            self.table[self.begin : first] = [0] * (min(first, len(self.table)) - self.begin)
            self.begin = min(first, len(self.table))

    def shrink(self, cache: CachedText, keep: int) -> None:
        """Implements :meth:`SequencePart.shrink`."""
        gone = [slot for slot in self.table[keep:] if slot]
        self.slots.let_go(gone, cache.owner, passed=False)
        del self.table[keep:]
        self.begin, self._whole = min(self.begin, len(self.table)), min(self._whole, len(self.table))

    # --- it goes -------------------------------------------------------------------------------------------------

    def replaced(self, cache: CachedText, at: int, page: int) -> None:
        """Implements :meth:`SequencePart.replaced`: where the tree has the same text without slots, its own page gets
        this one's."""
        slots, held = self.slots, self.table[at] if at < len(self.table) else 0
        if held and slots.of_page[page]:
            self.table[at] = slots.hold(page, cache.owner)
            slots.let_go([held], cache.owner, passed=False)
        elif held:
            slots.pass_on(cache.pages[at], page)

    def commit(self, cache: CachedText, before: int, ended: bool) -> None:
        """Implements :meth:`SequencePart.commit`: pages that the tree takes over keep their slots."""
        self.slots.keep(cache.pages[before : cache.shared])

    def prepare(self, cache: CachedText) -> bool:
        """Implements :meth:`SequencePart.prepare`: the slots are taken, which the content of pages goes to."""
        self.begin = self._first(cache)
        if self.slots.lacks(pages_for(cache.num_computed) - self.begin):
            return False
        self.allocate(cache, 0)
        return True

    def close(self, cache: CachedText) -> None:
        """Implements :meth:`SequencePart.close`."""
        self.shrink(cache, 0)


class WindowGroup(CacheGroup[WindowPart]):
    """Owns the slots that sequences and the tree hold. ``content`` copies what they hold."""

    def __init__(self, slots: WindowSlots, content: Content) -> None:
        super().__init__(slots.pool)
        self.slots, self.content = slots, content

    def join(self, tree: PrefixTree, packed: Callable[[int], int]) -> None:
        """Implements :meth:`CacheGroup.join`: the tree's pages lose their slots with the pages."""
        self._pages = tree.pool.total
        tree.freed = self.slots.drop

    def new(self, cache: CachedText) -> WindowPart:
        """Implements :meth:`CacheGroup.new`."""
        return WindowPart(self)

    @property
    def version(self) -> int:
        """Implements :attr:`CacheGroup.version`."""
        return self.slots.version

    @property
    def most_rows(self) -> int:
        """Implements :attr:`CacheGroup.most_rows`: rows that have slots beside those of the window, which begins
        anywhere on a page, and of a copy."""
        if self.pool.total >= self._pages:
            return NO_LIMIT
        return PAGE_SIZE * max(1, self.pool.total - 1 - self.slots.most_held(0))

    @property
    def snapshot_pages(self) -> int:
        """Implements :attr:`CacheGroup.snapshot_pages`."""
        return self.slots.kept

    def admits(self, cache: CachedText, running: Sequence[CachedText], chunk: int) -> bool:
        """Implements :meth:`CacheGroup.admits`: there are slots for its rows, and for all sequences at their
        longest."""
        lacking = 1
        for each in (*running, cache):
            rows = min(each.chunk(min(chunk, self.most_rows)), each.pending)
            most = min(pages_for(len(each.tokens) + 1), self.slots.most_held(rows))
            lacking += max(0, most - self.of(each).slots_held)
        return not running or not self.slots.lacks(lacking)

    def check(self, idle: bool = False) -> None:
        """Implements :meth:`CacheGroup.check`."""
        self.slots.check()
        super().check(idle)
