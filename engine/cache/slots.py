"""Slots of pages in the arenas of layers with a sliding window, and their owners.

Such layers read the last tokens alone, so that their arenas are smaller than the pool and are addressed by slots of
their own. A page has a slot while a sequence may read it there; the prefix tree keeps slots of its pages besides, from
which later texts go on, as long as nobody needs the room. It knows numbers and owners, no tensors.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import islice

from engine.cache.pool import PAGE_SIZE, PagePool, pages_for
from engine.cache.stores.packed import CHANNEL_GROUP
from engine.cache.stores.recent import last_before, packed_until
from engine.cache.types import TREE

GROUP_PAGES = CHANNEL_GROUP // PAGE_SIZE
"""Pages of a group that is packed together."""


def first_seen(index: int, window: int) -> int:
    """The page of the first token that the row at this index sees."""
    return max(0, index + 1 - window) // PAGE_SIZE


class WindowSlots:
    """The slot of each page, 0: it has none. A slot is free when neither a sequence nor the tree refers to it.

    Invariant: a page and its slot name each other, and what the tree keeps are slots of pages that it owns.
    """

    def __init__(self, pages: int, slots: int, window: int, residual: int = 0) -> None:
        """``pages`` and ``slots`` count page 0 and slot 0, which hold nothing; ``window`` is the widest of a layer.

        With a ``residual`` they hold packed tokens (`engine.cache.stores.recent`): groups of two pages come and go
        together, and the last tokens of a text are elsewhere."""
        self.pool, self.window, self.residual = PagePool(slots), window, residual
        self.of_page, self._page_of = [0] * pages, [0] * slots
        self.version = 0
        """Changes with whatever can change what a text finds."""
        self.unfilled: set[int] = set()
        """Pages that came back from a tier below without what their slots should hold."""
        # Both from the longest unused on. What a sequence has passed goes before what it ended with: a later turn goes
        # on from there, while few texts part in the middle of another.
        self._passed: dict[int, None] = {}
        self._ends: dict[int, None] = {}

    @property
    def kept(self) -> int:
        """Slots that the tree refers to."""
        return len(self._passed) + len(self._ends)

    def _lone(self, most: int) -> list[int]:
        """The first pages to lose the slots that the tree alone keeps, as many as are asked for if there are."""
        kept = (page for part in (self._passed, self._ends) for page in part)
        return list(islice((page for page in kept if self.pool.refs(self.of_page[page]) == 1), most))

    def lacks(self, slots: int) -> bool:
        """Return True if fewer than ``slots`` slots can be had."""
        more = slots - self.pool.free_count
        return more > 0 and len(self._lone(more)) < more

    def first(self, tokens: int) -> int:
        """The first page whose slot the row after ``tokens`` tokens wants."""
        first = first_seen(tokens, self.window)
        return first - first % GROUP_PAGES if self.residual else first

    def most_held(self, rows: int) -> int:
        """The most pages that have slots in a step of ``rows`` rows, wherever on a page the window begins."""
        return pages_for(self.window - 1 + rows) + (GROUP_PAGES if self.residual else 1)

    def longest(self, pages: Sequence[int], tokens: int) -> int:
        """The most of the first ``tokens`` tokens, which have these pages, after which all that the next row reads in
        slots is there; page 0 stands for one that is elsewhere, about which nothing is known here."""
        while tokens > 0:
            stop = packed_until(tokens - 1, self.residual) // PAGE_SIZE if self.residual else pages_for(tokens)
            places = range(min(stop, len(pages)) - 1, self.first(tokens) - 1, -1)
            gap = next((place for place in places if pages[place] and not self.of_page[pages[place]]), -1)
            if gap < 0:
                break
            tokens = last_before(gap * PAGE_SIZE, self.residual) if self.residual else gap * PAGE_SIZE
        return tokens

    # --- sequences -----------------------------------------------------------------------------------------------

    def hold(self, page: int, owner: Hashable) -> int:
        """Refer to the page's slot; one is taken for it if it has none, for which there must be room."""
        slot = self.of_page[page]
        if slot:
            self.pool.retain([slot], owner)
            return slot
        self.make_room(1)
        (slot,) = self.pool.allocate(1, owner)
        self.of_page[page], self._page_of[slot] = slot, page
        return slot

    def let_go(self, slots: Sequence[int], owner: Hashable, passed: bool) -> None:
        """Refer to them no more. ``passed``: the sequence goes on and has left them behind."""
        self.pool.release(slots, owner)
        for slot in slots:
            if self.pool.refs(slot):
                self._order(self._page_of[slot], passed)
            else:
                self._clear(slot)

    def _order(self, page: int, passed: bool) -> None:
        if page in self._passed or page in self._ends:
            self._passed.pop(page, None)
            self._ends.pop(page, None)
            (self._passed if passed else self._ends)[page] = None

    def _clear(self, slot: int) -> None:
        page, self._page_of[slot] = self._page_of[slot], 0
        self.of_page[page] = 0
        self.unfilled.discard(page)
        self.version += 1

    def pass_on(self, page: int, to: int) -> None:
        """Let a page that has the same content, and no slot, have this one's."""
        slot = self.of_page[page]
        self.of_page[page], self.of_page[to], self._page_of[slot] = 0, slot, to

    # --- the tree ------------------------------------------------------------------------------------------------

    def keep(self, pages: Sequence[int]) -> None:
        """Keep the slots of these pages, which are the tree's now, if they have some."""
        for page in pages:
            if self.of_page[page] and page not in self._passed and page not in self._ends:
                self.pool.retain([self.of_page[page]], TREE)
                self._ends[page] = None
                self.version += 1

    def drop(self, pages: Sequence[int]) -> None:
        """Keep the slots of these pages no more: the tree gives the pages up."""
        for page in pages:
            if page in self._passed or page in self._ends:
                self._passed.pop(page, None)
                self._ends.pop(page, None)
                slot = self.of_page[page]
                self.pool.release([slot], TREE)
                if not self.pool.refs(slot):
                    self._clear(slot)

    def make_room(self, free: int) -> bool:
        """Drop what the tree keeps and nobody reads until ``free`` slots are free."""
        self.drop(self._lone(max(0, free - self.pool.free_count)))
        return self.pool.free_count >= free

    def check(self) -> None:
        """Prove that the books agree. Raises AssertionError."""
        self.pool.check()
        named = {page: slot for page, slot in enumerate(self.of_page) if slot}
        assert named == {page: slot for slot, page in enumerate(self._page_of) if page}, "pages and slots disagree"
        assert all(self.pool.refs(slot) for slot in named.values()), "a page has a slot that nobody holds"
        assert len(named) == self.pool.used_count, "a slot is held for no page"
        kept = [self.of_page[page] for page in (*self._passed, *self._ends)]
        assert sorted(kept) == sorted(self.pool.owned_by(TREE)), "what is kept and the ledger disagree"
        assert not self.unfilled, "a slot has no content"
