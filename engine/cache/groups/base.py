"""Cache groups: what the layers of one kind keep of a text beside the pages of the pool.

A manager (`engine.cache.manager`) has a group for each such kind that its model has, and every sequence a part of
each group, in the same order. A group says in what it differs from pages alone: after how many tokens a text may go on,
what more rows need, what a copied page takes along, what is kept and given back. None knows of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, cast

from engine.cache.policies import NO_LIMIT
from engine.cache.pool import PagePool
from engine.cache.prefix.radix import PrefixTree
from engine.cache.text import CachedText
from engine.cache.types import TREE, OffloadedPages, StateRun, Tier

GRACE = 16
"""Tokens at the end of a text that may turn out otherwise in the next one, as templates write a prompt's end in
another way once an answer follows, while what is before them is found."""


class StateCounts(NamedTuple):
    """States ``held`` on the device, and how many are ``kept`` of texts, wherever."""

    held: int = 0
    kept: int = 0


class SequencePart:
    """Part of one sequence in a group. It begins empty; ``cache`` is the sequence that it is part of."""

    __slots__ = ()
    table: list[int] | None = None
    """Page table of the group's layers, by place in the sequence; None: they have none."""

    def longest(self, cache: CachedText, tokens: int, pages: Sequence[int]) -> int:
        """Return the most of the first ``tokens`` tokens after which the group lets the sequence go on, wherever what
        it takes is. ``pages`` are those that they have, 0 for each in a tier below."""
        return tokens

    def opening(self, cache: CachedText) -> None:
        """Note that the sequence is about to look for its beginning."""

    def open(self, cache: CachedText) -> None:
        """Hold what the group has on the device of the tokens that are computed; once more changes nothing."""

    def grown(self, cache: CachedText, before: int, tokens: int) -> None:
        """Get the pages from place ``before`` on ready to come back from a tier below, for the first ``tokens``
        tokens."""

    def filled(self, cache: CachedText, before: int) -> bool:
        """Pages from place ``before`` on came back from a tier below; False: without what the group wants."""
        return True

    def restore(self, cache: CachedText) -> bool:
        """Bring what an opened sequence lacks to the device; False: it is lost."""
        return True

    def crowds(self) -> bool:
        """Return True if what was found takes room that rows need."""
        return False

    def fits(self, cache: CachedText, rows: int) -> bool:
        """Return True if there is room for ``rows`` more rows."""
        return True

    def allocate(self, cache: CachedText, rows: int) -> None:
        """Take what ``rows`` more rows need; their pages are there."""

    def copied(self, cache: CachedText, at: int) -> None:
        """Follow the page at a place, which was copied because others refer to it."""

    def runs(self, cache: CachedText, drafts: int) -> tuple[StateRun, ...]:
        """Runs that advance a state in the planned step, before ``drafts`` draft tokens; () if there is none."""
        return ()

    def take_replays(self, cache: CachedText) -> tuple[StateRun, ...]:
        """Take the runs that advance a state over draft tokens accepted in this step; () if there are none."""
        return ()

    def advance(self, cache: CachedText, tokens: int) -> None:
        """Note that ``tokens`` more are computed, which are not counted yet."""

    def shed(self, cache: CachedText) -> None:
        """Give back what no row of the sequence will read again."""

    def shrink(self, cache: CachedText, keep: int) -> None:
        """Give back what goes with all pages but the first ``keep``."""

    def replaced(self, cache: CachedText, at: int, page: int) -> None:
        """Follow the page at a place, for which the tree has another one with the same content, ``page``."""

    def commit(self, cache: CachedText, before: int, ended: bool) -> None:
        """Keep what later texts can use; the tree has taken the pages from place ``before`` on."""

    def keep_at(self, cache: CachedText, tokens: int, asked: bool) -> None:
        """Keep what it takes to go on after these tokens, whole pages of the prompt whose rows are computed by now, as
        another group does; what is not ``asked`` for is the first to be given up."""

    def stops_at(self, tokens: int) -> bool:
        """Return True if all groups keep, or have kept, what it takes to go on after the first ``tokens`` tokens,
        because this one does."""
        return False

    def kept(self, cache: CachedText, tokens: int) -> list[int]:
        """Pages of the group's own that hold what it takes to go on after these tokens, if they are on the device."""
        return []

    def offloaded(self, cache: CachedText) -> list[int]:
        """Pages of the group's own that go to a tier below with a preempted sequence; 0 among them: it cannot go."""
        return []

    def prepare(self, cache: CachedText) -> bool:
        """Take room for what comes back from a tier below; False: there is none."""
        return True

    def close(self, cache: CachedText) -> None:
        """Give everything back."""


P = TypeVar("P", bound=SequencePart)


class CacheGroup(Generic[P]):
    """Part of the cache that belongs to layers of one kind."""

    anywhere = True
    """True if a text may go on after any of its tokens; False: where something was kept for that."""
    packs = False
    """True if tokens are in pages of the group before they are packed into the pool's; such a group is the first."""
    tier: Tier | None = None
    """Where what preempted sequences have of the group goes."""
    place: int
    """Number among the groups of its manager."""

    def __init__(self, pool: PagePool) -> None:
        """``pool``: pages of the group's own."""
        self.pool = pool

    def join(self, tree: PrefixTree, packed: Callable[[int], int]) -> None:
        """Become a group of the manager with this tree, whose :meth:`KVCacheManager.packed` is given."""

    def new(self, cache: CachedText) -> P:
        """Part of a new sequence."""
        raise NotImplementedError

    def of(self, cache: CachedText) -> P:
        """Part of a sequence."""
        return cast("P", cache.parts[self.place])

    @property
    def version(self) -> int:
        """Changes with whatever can change what a text finds."""
        return 0

    @property
    def most_rows(self) -> int:
        """Rows of one sequence for which a step always has room, if no other sequence runs."""
        return NO_LIMIT

    @property
    def snapshot_pages(self) -> int:
        """Pages that are kept for texts that ended."""
        return 0

    @property
    def states(self) -> StateCounts:
        """States of the group."""
        return StateCounts()

    def packed(self, tokens: int) -> int:
        """Tokens that are in pages of the pool when the first ``tokens`` are computed."""
        return tokens

    def saved_pages(self, tokens: int) -> int:
        """Number of pages of the group's own that hold what it takes to go on after these tokens."""
        return 0

    def adopt(self, cache: CachedText, tokens: int, held: OffloadedPages) -> None:
        """Know of what a tier holds of the group, with which a sequence can go on after its first ``tokens`` tokens."""

    def admits(self, cache: CachedText, running: Sequence[CachedText], chunk: int) -> bool:
        """Return True if an opened sequence, read in chunks, has room to run with the others."""
        return True

    def will_find(self, pages: int, other: CachedText) -> bool:
        """Return True if a text that shares its first ``pages`` pages with another can reuse them once that is read."""
        return True

    def check(self, idle: bool = False) -> None:
        """Check the group's books; when ``idle``, that no sequence holds anything. Raises AssertionError."""
        self.pool.check()
        strays = [owner for owner in self.pool.owners() if owner != TREE]
        assert not idle or not strays, f"{type(self).__name__} holds something for {strays}, and nobody runs"


AnyGroup = CacheGroup[Any]
