"""Host memory for pages that the device has no room for: preempted answers, and a second tier of the prefix tree.

What a preempted answer put there stays until it is taken back or dropped. What the prefix tree put there gives way to
either, the longest unused first. The space knows bytes and handles; who a handle belongs to is its owner's business.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

from torch import Tensor

from engine.base.devices import traits
from engine.cache.pool import PAGE_SIZE
from engine.cache.stores.paged import PagedStore
from engine.cache.stores.transfer import host_buffer, host_cost, pages_per_stage

_log = logging.getLogger(__name__)

Owner = Literal["answer", "tree"]


@dataclass(eq=False)
class Swapped:
    """A handle: some pages in host memory. It is valid from `put` to `get`, `drop` or its eviction."""

    owner: Owner
    pages: int
    tokens: int
    """Tokens in these pages, as its owner counted: the last page may be partly filled."""
    size: int
    """Bytes of host memory."""
    used: float
    """Time when it was put, by the space's clock."""
    blobs: list[list[Tensor]] = field(repr=False)
    """Content from each store, in pieces: uint8 [pages, page_bytes]."""
    place: ClassVar[str] = "host"
    """Implements :attr:`engine.cache.types.OffloadedPages.place`."""

    @property
    def pinned(self) -> bool:
        return any(piece.is_pinned() for pieces in self.blobs for piece in pieces[:1])

    @property
    def evictable(self) -> bool:
        return self.owner == "tree"


class Rate:
    """Bytes per second, moving: what was measured last weighs most, and large transfers more than small ones."""

    _KEEP = 0.8

    def __init__(self) -> None:
        self.total = 0
        """Bytes since the start."""
        self._bytes = self._seconds = 0.0

    @property
    def per_second(self) -> float | None:
        """None before anything was measured."""
        return self._bytes / self._seconds if self._seconds > 0 else None

    def add(self, size: int, seconds: float) -> None:
        self.total += size
        self._bytes = self._KEEP * self._bytes + size
        self._seconds = self._KEEP * self._seconds + max(seconds, 0.0)


class SwapCounts(NamedTuple):
    """Now: handles, pages, bytes of host memory, and how many of these may be evicted. Since the start: pages.

    ``failed``: puts that found no room. A page of several stores counts once.
    """

    handles: int
    pages: int
    size: int
    evictable: int
    swapped_out: int
    swapped_in: int
    evicted: int
    failed: int


class SwapSpace:
    """Pages in host memory, at most `budget` bytes of it; pinned where their store is on a GPU.

    The owner of a handle of kind "tree" must forget it when `on_evict(handle)` says that it is gone. The callback may
    drop other handles (a node's children are of no use without it); it must not put.

    Among handles of the same time, the one put or touched first is evicted first. A tree therefore puts children before
    their parents, and touches a path from its end to the root.
    """

    def __init__(
        self,
        budget: int,
        clock: Callable[[], float] = time.perf_counter,
        on_evict: Callable[[Swapped], None] = lambda handle: None,
    ) -> None:
        self.budget, self.on_evict = budget, on_evict
        self.out, self.into = Rate(), Rate()
        """The links to host memory and back, of all stores together."""
        self._clock = clock
        self._held: dict[Swapped, None] = {}  # the longest unused first
        self._size = self._evictable = self._pages = 0
        self._grown = 0  # bytes by which splits made pinned memory larger since the last eviction
        self._swapped_out = self._swapped_in = self._evicted = self._failed = 0

    # --- what owners do ------------------------------------------------------------------------------------------

    def put(self, stores: Sequence[PagedStore], pages: Sequence[int], tokens: int, owner: Owner) -> Swapped | None:
        """Copy the pages of all stores (which share the page numbers) here; the pages can be freed when it returns.

        None, and nothing has changed but what was evicted for it, if there is no room. Raises ValueError for no pages.
        """
        if not pages:
            raise ValueError("there is nothing to swap")
        size = self.cost(stores, len(pages))
        blobs = None
        if self.fits(stores, len(pages)):
            self._evict(size)
            blobs = self._allocated(stores, len(pages))
        if blobs is None:
            self._failed += 1
            return None
        start = self._clock()
        for store, pieces in zip(stores, blobs, strict=True):
            for piece, part in _in_pieces(pieces, pages):
                store.export_pages(part, out=piece)
        now = self._clock()
        self.out.add(len(pages) * sum(store.page_bytes for store in stores), now - start)
        self._swapped_out += len(pages)
        handle = Swapped(owner, len(pages), tokens, size, now, blobs)
        self._held[handle] = None
        self._count(handle, 1)
        return handle

    def get(self, handles: Sequence[Swapped], stores: Sequence[PagedStore], pages: Sequence[int]) -> None:
        """Copy back what the handles hold, one after the other, to as many `pages`, and drop them.

        Raises ValueError, and does nothing, if the counts differ or a handle is not held or is of other stores.
        """
        self._expect(handles)
        if sum(handle.pages for handle in handles) != len(pages):
            raise ValueError(f"{len(pages)} pages for {sum(handle.pages for handle in handles)} swapped ones")
        widths = [store.page_bytes for store in stores]
        for handle in handles:
            if [pieces[0].shape[1] for pieces in handle.blobs] != widths:
                raise ValueError("pages were swapped out from other stores")
        start, done = self._clock(), 0
        for handle in handles:
            for store, pieces in zip(stores, handle.blobs, strict=True):
                for piece, part in _in_pieces(pieces, pages[done : done + handle.pages]):
                    store.import_pages(part, piece)
            done += handle.pages
        self.into.add(done * sum(widths), self._clock() - start)
        self._swapped_in += done
        self._forget(handles)

    def drop(self, handles: Sequence[Swapped]) -> None:
        """Give up what they hold. Raises ValueError, and does nothing, if one is not held."""
        self._expect(handles)
        self._forget(handles)

    def split(self, handle: Swapped, pages: int) -> tuple[Swapped, Swapped]:
        """Split a handle into two, the first with ``pages`` pages; both get new memory, so the content briefly exists
        twice.

        Nothing is evicted for it, so that its owner can take the parts in: pinned memory may grow for a while. Raises
        ValueError for a handle that is not held, is locked, or has no more pages.
        """
        self._expect([handle])
        if not 0 < pages < handle.pages:
            raise ValueError(f"a handle of {handle.pages} pages cannot be split after {pages}")
        parts = []
        for first, stop in ((0, pages), (pages, handle.pages)):
            blobs = [[_cut(pieces, first, stop, handle)] for pieces in handle.blobs]
            size = sum(host_cost(stop - first, pieces[0].shape[1], handle.pinned) for pieces in blobs)
            tokens = max(0, min(handle.tokens, stop * PAGE_SIZE) - first * PAGE_SIZE)
            parts.append(Swapped(handle.owner, stop - first, tokens, size, handle.used, blobs))
        held = list(self._held)
        place = held.index(handle)
        self._forget([handle])
        for part in parts:
            self._count(part, 1)
        self._grown += max(0, sum(part.size for part in parts) - handle.size)
        # Both take the place of what they were, lest the order of use be lost.
        self._held = dict.fromkeys([*held[:place], *reversed(parts), *held[place + 1 :]])
        return parts[0], parts[1]

    # --- sizes and checks ----------------------------------------------------------------------------------------

    def cost(self, stores: Sequence[PagedStore], pages: int) -> int:
        """Bytes of host memory that ``pages`` pages of the stores take here."""
        return sum(
            host_cost(count, store.page_bytes, traits(store.device).pinned)
            for store in stores
            for count in _pieces(store, pages)
        )

    def fits(self, stores: Sequence[PagedStore], pages: int, more: int = 0) -> bool:
        """Return True if `put` would find room, by eviction if necessary, with `more` bytes to spare."""
        return self._size - self._evictable + self.cost(stores, pages) + more <= self.budget

    def resize(self, budget: int) -> None:
        """Another budget: what is over it and may be evicted is. Preempted answers stay until they are taken back."""
        self.budget = budget
        self._evict(0)

    @property
    def counts(self) -> SwapCounts:
        now = len(self._held), self._pages, self._size, self._evictable
        return SwapCounts(*now, self._swapped_out, self._swapped_in, self._evicted, self._failed)

    def check(self) -> None:
        """Prove that the books agree with what is held. Raises AssertionError."""
        held = list(self._held)
        sums = (sum(h.size for h in held), sum(h.size for h in held if h.evictable), sum(h.pages for h in held))
        if sums != (self._size, self._evictable, self._pages):
            raise AssertionError(f"counted {(self._size, self._evictable, self._pages)}, held are {sums}")
        if self._size > self.budget + self._grown and self._evictable:
            raise AssertionError("over the budget with something to evict")
        if [h.used for h in held] != sorted(h.used for h in held):
            raise AssertionError("not in the order of their use")
        for handle in held:
            if any(sum(map(len, pieces)) != handle.pages for pieces in handle.blobs):
                raise AssertionError(f"{handle} does not hold what it says")

    # --- inside --------------------------------------------------------------------------------------------------

    def _evict(self, size: int) -> None:
        """Until ``size`` bytes more fit, or nothing is left that may go."""
        self._grown = 0
        while self._size + size > self.budget and self._evictable:
            handle = next(handle for handle in self._held if handle.evictable)
            self._forget([handle])
            self._evicted += handle.pages
            self.on_evict(handle)

    def _allocated(self, stores: Sequence[PagedStore], pages: int) -> list[list[Tensor]] | None:
        try:
            return [
                [host_buffer(count, store.page_bytes, traits(store.device).pinned) for count in _pieces(store, pages)]
                for store in stores
            ]
        except (RuntimeError, MemoryError) as error:
            _log.warning("host memory for %d pages was refused: %s", pages, error)
            return None

    def _expect(self, handles: Sequence[Swapped]) -> None:
        if len(set(handles)) != len(handles) or any(handle not in self._held for handle in handles):
            raise ValueError("a handle is not held, or is named twice")

    def _forget(self, handles: Sequence[Swapped]) -> None:
        for handle in handles:
            del self._held[handle]
            self._count(handle, -1)
            handle.blobs = []

    def _count(self, handle: Swapped, sign: int) -> None:
        self._size += sign * handle.size
        self._pages += sign * handle.pages
        if handle.evictable:
            self._evictable += sign * handle.size


def _cut(pieces: Sequence[Tensor], first: int, stop: int, handle: Swapped) -> Tensor:
    """The pages [first, stop) of what was put in pieces, in memory of their own."""
    part = host_buffer(stop - first, pieces[0].shape[1], handle.pinned)
    at = 0
    for piece in pieces:
        low, high = max(first, at), min(stop, at + len(piece))
        if low < high:
            part[low - first : high - first] = piece[low - at : high - at]
        at += len(piece)
    return part


def _pieces(store: PagedStore, pages: int) -> list[int]:
    """Numbers of pages for each buffer: few buffers, yet none so large that rounding it up wastes much."""
    step = pages_per_stage(store.page_bytes)
    return [min(step, pages - start) for start in range(0, pages, step)]


def _in_pieces(pieces: Sequence[Tensor], pages: Sequence[int]) -> list[tuple[Tensor, Sequence[int]]]:
    """Each buffer with the pages that it holds."""
    parts, start = [], 0
    for piece in pieces:
        parts.append((piece, pages[start : start + len(piece)]))
        start += len(piece)
    return parts
