"""The ledger of pages: who holds which page of 16 tokens. It knows numbers and owners, no tensors."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence

import numpy as np

PAGE_SIZE = 16


def pages_for(tokens: int) -> int:
    """The number of pages that hold ``tokens`` tokens."""
    return -(-tokens // PAGE_SIZE)


def slots_of(pages: Sequence[int], tokens: range) -> np.ndarray:
    """Slots int64 of a range of a sequence's tokens, in arenas that its table ``pages`` addresses."""
    first = tokens.start // PAGE_SIZE
    taken = np.asarray(pages[first : pages_for(tokens.stop)], dtype=np.int64)
    slots = (taken[:, None] * PAGE_SIZE + np.arange(PAGE_SIZE)).ravel()
    return slots[tokens.start - first * PAGE_SIZE :][: len(tokens)]


class OutOfPages(Exception):  # noqa: N818 - an outcome the scheduler handles, not a fault
    """The pool has fewer free pages than asked for; nothing was allocated."""

    def __init__(self, wanted: int, free: int) -> None:
        super().__init__(f"{wanted} pages wanted, {free} free")
        self.wanted, self.free = wanted, free


class PagePool:
    """Hands out page numbers and counts references by owner (a sequence, a node of the prefix tree, a transfer).

    A page is free when no owner refers to it. Page 0 is scratch: it belongs to nobody and is never handed out. An owner
    may refer to a page several times. Calls are all or nothing, and cost O(log pool) for each page.
    """

    def __init__(self, pages: int, in_runs: bool = True) -> None:
        """`pages` counts page 0. `in_runs`: an owner's pages follow each other where they can; else the lowest are
        taken, so that few of them are written."""
        if pages < 1:
            raise ValueError("a pool needs at least its scratch page")
        self._refs, self._in_runs = [0] * pages, in_runs
        self._owned: dict[Hashable, dict[int, int]] = {}
        # A heap of page numbers, lowest first. A page taken from its middle stays there as a stale entry until it
        # comes to the top, or becomes true again when the page is freed: so every free page is in it once, and so may
        # be others.
        self._heap = list(range(1, pages))
        self._in_heap = bytearray([0]) + bytearray([1]) * (pages - 1)
        self._free = pages - 1

    @property
    def total(self) -> int:
        """Pages that can be handed out: all but page 0."""
        return len(self._refs) - 1

    @property
    def free_count(self) -> int:
        """The number of pages without an owner."""
        return self._free

    @property
    def used_count(self) -> int:
        """The number of pages with at least one owner."""
        return self.total - self._free

    def allocate(self, n: int, owner: Hashable) -> list[int]:
        """Take n free pages for the owner: those that follow its newest page if they are free (and the pool is
        ``in_runs``), else the lowest.

        Consecutive pages are read in place by attention, others are gathered first. Raises OutOfPages.
        """
        if n > self._free:
            raise OutOfPages(n, self._free)
        if n <= 0:
            return []
        held = self._owned.setdefault(owner, {})
        after = next(reversed(held), 0)
        taken = []
        for _ in range(n):
            after = self._take(after + 1 if self._in_runs else 0)
            held[after] = 1
            taken.append(after)
        self._free -= n
        return taken

    def retain(self, pages: Sequence[int], owner: Hashable) -> None:
        """Add one reference of the owner to each page. Raises ValueError if a page is free or is page 0."""
        refs = self._refs
        for page in pages:
            if not 0 < page < len(refs) or refs[page] == 0:
                raise ValueError(f"page {page} is held by nobody, so it cannot be shared")
        if not pages:
            return
        held = self._owned.setdefault(owner, {})
        for page in pages:
            refs[page] += 1
            held[page] = held.get(page, 0) + 1

    def release(self, pages: Sequence[int], owner: Hashable) -> None:
        """Drop one reference of the owner to each page; a page without references is free.

        Raises ValueError if the owner has fewer references to a page than are dropped.
        """
        held = self._owned.get(owner, {})
        for done, page in enumerate(pages):
            count = held.get(page, 0)
            if count == 0:
                for undone in pages[:done]:
                    held[undone] = held.get(undone, 0) + 1
                raise ValueError(f"{owner!r} does not hold page {page}")
            if count == 1:
                del held[page]
            else:
                held[page] = count - 1
        for page in pages:
            self._refs[page] -= 1
            if self._refs[page] == 0:
                self._free += 1
                if not self._in_heap[page]:
                    self._in_heap[page] = 1
                    heapq.heappush(self._heap, page)
        if not held:
            self._owned.pop(owner, None)

    def release_all(self, owner: Hashable) -> int:
        """Drop every reference of the owner (a sequence that ended or was aborted); returns how many there were."""
        pages = [page for page, count in self._owned.get(owner, {}).items() for _ in range(count)]
        self.release(pages, owner)
        return len(pages)

    def refs(self, page: int) -> int:
        """References to the page, of all owners together."""
        return self._refs[page]

    def all_refs(self) -> list[int]:
        """References to every page, page 0 included."""
        return self._refs.copy()

    def owned_by(self, owner: Hashable) -> list[int]:
        """Pages that the owner refers to, in the order in which it came to them."""
        return list(self._owned.get(owner, ()))

    def owners(self) -> list[Hashable]:
        """Everybody who holds a page."""
        return list(self._owned)

    def check(self) -> None:
        """Prove that free + used = all and that the references add up. O(pool). Raises AssertionError."""
        counted = [0] * len(self._refs)
        for owner, held in self._owned.items():
            if not held:
                raise AssertionError(f"{owner!r} is in the ledger and holds nothing")
            for page, count in held.items():
                if count <= 0:
                    raise AssertionError(f"{owner!r} holds page {page} {count} times")
                counted[page] += count
        if counted != self._refs:
            wrong = [page for page, (a, b) in enumerate(zip(counted, self._refs, strict=True)) if a != b]
            raise AssertionError(f"the references to the pages {wrong} do not add up")
        if self._refs[0]:
            raise AssertionError("page 0 belongs to nobody")
        if self._free + sum(1 for count in self._refs if count) != self.total:
            raise AssertionError("free and used pages do not add up to the pool")
        if sorted(self._heap) != [page for page, flag in enumerate(self._in_heap) if flag]:
            raise AssertionError("the free list disagrees with its flags")
        if any(not flag and not count for flag, count in zip(self._in_heap[1:], self._refs[1:], strict=True)):
            raise AssertionError("a free page is not in the free list")

    def _take(self, wish: int) -> int:
        """Remove one free page: the wished one if it is free, else the lowest. There is a free page."""
        refs = self._refs
        if wish > 1 and wish < len(refs) and refs[wish] == 0:
            refs[wish] = 1
            return wish
        while True:
            page = heapq.heappop(self._heap)
            self._in_heap[page] = 0
            if refs[page] == 0:
                refs[page] = 1
                return page
