"""Recent tokens of texts that ended, kept as they were, so that a later text goes on where one of them stopped.

Of a text of n tokens the prefix tree keeps the packed pages [0, B(n - 1)) and a snapshot the pages of a second pool
that hold the rest (engine/cache/stores/recent.py). Both together are what the rows after the text read, so a look-up
ends where a snapshot does, or a little before. It knows page numbers and tokens, no tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from engine.cache.pool import PAGE_SIZE, PagePool, pages_for
from engine.cache.stores.packed import CHANNEL_GROUP
from engine.cache.stores.recent import last_before, packed_until
from engine.cache.types import TREE, Key, common

_Place = tuple[Hashable, int, Key]


class Snapshot:
    """The tokens [first, first + len(tokens)) of a text whose first ``first``, whole groups, have these ``keys``."""

    __slots__ = ("first", "keys", "namespace", "pages", "tokens")

    def __init__(self, namespace: Hashable, keys: list[Key], tokens: list[int], pages: list[int]) -> None:
        self.namespace, self.keys, self.tokens, self.pages = namespace, keys, tokens, pages
        self.first = len(keys) * PAGE_SIZE

    @property
    def place(self) -> _Place:
        """Look-up key, which a text's own tokens lead to. It holds the last page's key alone: `find` compares the
        others."""
        return self.namespace, self.first, self.keys[-1] if self.keys else b""


class Hit(NamedTuple):
    """``tokens`` need not be computed: the first ``packed`` are the tree's, ``pages`` hold the others as they were."""

    tokens: int
    packed: int
    pages: list[int]
    snapshot: Snapshot


class Snapshots:
    """Owns one reference to each page of each snapshot in the second pool. They may fill it: they give way to rows."""

    def __init__(
        self,
        pool: PagePool,
        residual: int,
        packed: Callable[[Hashable, Sequence[Key]], bool] = lambda namespace, keys: True,
    ) -> None:
        """``packed(namespace, keys)``: whether the packed pages of these keys can still be had."""
        self.pool, self.residual, self._packed = pool, residual, packed
        self.version = 0  # changes with every snapshot that comes or goes
        self._all: dict[Snapshot, None] = {}  # the longest unused first
        self._at: dict[_Place, list[Snapshot]] = {}
        self._firsts: dict[Hashable, Counter[int]] = {}
        self._refs: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._all)

    @property
    def pages(self) -> int:
        """Different pages that snapshots hold."""
        return len(self._refs)

    @property
    def evictable(self) -> int:
        """Pages that would be free if all snapshots were given up."""
        return sum(1 for page, count in self._refs.items() if self.pool.refs(page) == count)

    def refs(self, page: int) -> int:
        """Number of snapshots that hold the page."""
        return self._refs[page]

    def find(self, namespace: Hashable, keys: Sequence[Key], text: Sequence[int], packed: int) -> Hit | None:
        """The most of ``text`` that need not be computed; the tree has the first ``packed`` tokens of it.

        ``keys`` are those of the text's whole pages. A text may leave a snapshot before its end: what follows then
        still reads the same packed tokens, as long as none of them are the snapshot's. Changes nothing.
        """
        best: Hit | None = None
        for first in self._firsts.get(namespace, ()):
            if first > min(packed, len(text)):
                continue
            before = keys[: first // PAGE_SIZE]
            for each in self._at.get((namespace, first, before[-1] if before else b""), ()):
                if each.keys != before:
                    continue
                tokens = first + common(each.tokens, text[first : first + len(each.tokens)])
                tokens = min(tokens, last_before(packed, self.residual))  # rows there read no more packed
                if tokens > (best.tokens if best else 0) and (not first or tokens >= first + self.residual):
                    best = self._hit(each, tokens)
        return best

    def _hit(self, snapshot: Snapshot, tokens: int) -> Hit:
        packed = packed_until(tokens - 1, self.residual)
        start, stop = (packed - snapshot.first) // PAGE_SIZE, pages_for(tokens - snapshot.first)
        return Hit(tokens, packed, snapshot.pages[start:stop], snapshot)

    def touch(self, snapshot: Snapshot) -> None:
        """Mark the snapshot as used now."""
        del self._all[snapshot]
        self._all[snapshot] = None

    def keep(
        self, namespace: Hashable, keys: list[Key], tokens: list[int], pages: list[int], asked: bool = True
    ) -> None:
        """Refer to the pages of ``tokens``, which follow those of ``keys``; what was kept of a part of it goes.

        One that is not ``asked`` for is the first to be given up.
        """
        new = Snapshot(namespace, keys, tokens, pages)
        for other in list(self._at.get(new.place, ())):
            if other.keys == keys:
                alike = common(tokens, other.tokens)
                if alike == len(tokens):
                    self.touch(other)
                    return
                if alike == len(other.tokens):
                    self._drop(other)
        self.pool.retain(pages, TREE)
        self._refs.update(pages)
        self._all[new] = None
        if not asked:
            self._all = {new: None, **self._all}
        self._at.setdefault(new.place, []).append(new)
        self._firsts.setdefault(namespace, Counter())[new.first] += 1
        self.version += 1

    def make_room(self, free: int) -> bool:
        """Drop snapshots until ``free`` pages are free: useless ones first, then the least recently used."""
        if self.pool.free_count < free:
            for each in [each for each in self._all if not self._packed(each.namespace, each.keys)]:
                self._drop(each)
        while self.pool.free_count < free and self._all:
            self._drop(next(iter(self._all)))
        return self.pool.free_count >= free

    def let_go(self, page: int) -> None:
        """Give up those that hold the page."""
        for each in [each for each in self._all if page in each.pages]:
            self._drop(each)

    def _drop(self, snapshot: Snapshot) -> None:
        del self._all[snapshot]
        here, firsts = self._at[snapshot.place], self._firsts[snapshot.namespace]
        here.remove(snapshot)
        if not here:
            del self._at[snapshot.place]
        firsts[snapshot.first] -= 1
        if not firsts[snapshot.first]:
            del firsts[snapshot.first]
        for page in snapshot.pages:
            self._refs[page] -= 1
            if not self._refs[page]:
                del self._refs[page]
        self.pool.release(snapshot.pages, TREE)
        self.version += 1

    def check(self) -> None:
        """Prove that the books agree with the ledger. Raises AssertionError."""
        counted: Counter[int] = Counter(page for each in self._all for page in each.pages)
        assert counted == self._refs, "pages of snapshots are counted wrongly"
        assert sorted(counted) == sorted(self.pool.owned_by(TREE)), "snapshots and the ledger disagree"
        assert all(self.pool.refs(page) >= count for page, count in counted.items())
        assert {each for here in self._at.values() for each in here} == set(self._all), "a snapshot cannot be found"
        for each in self._all:
            assert each.first % CHANNEL_GROUP == 0, "a snapshot begins within a group"
            assert each in self._at[each.place]
            assert len(each.pages) == pages_for(len(each.tokens)), "pages do not cover the tokens"
            assert each.first + len(each.tokens) > 0
        firsts = Counter((each.namespace, each.first) for each in self._all)
        kept = {(namespace, first): n for namespace, some in self._firsts.items() for first, n in some.items()}
        assert firsts == kept, "the beginnings of snapshots are counted wrongly"
