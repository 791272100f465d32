"""States that sequences carry besides their pages, for models with recurrent layers.

A state is in a slot of a second pool (`engine.cache.stores.states`). A step reads the state of a sequence from one slot
and leaves the next in another, and on its way states at the ends of some pages: near the end of a prompt, where another
text is known to branch off, and the last one of an answer so far. Those become snapshots
(`engine.cache.prefix.states`), from which later texts go on. What follows from drafts is computed again for those that
were accepted, from the state before them: no state of a rejected token is ever written.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from typing import NamedTuple

from engine.cache.groups.base import GRACE, CacheGroup, SequencePart, StateCounts
from engine.cache.pool import PAGE_SIZE, PagePool
from engine.cache.prefix.radix import PrefixTree
from engine.cache.prefix.states import StateSnapshot, StateSnapshots
from engine.cache.text import CachedText
from engine.cache.types import Key, OffloadedPages, StateRun, Tier, common

EVERY = 512
"""Tokens of a prompt after each of which a state is kept, in case another text leaves it there: the first to be given
up. (Without these, of four questions about one document the third was the first to find it.)"""
MOST_COMPARED = 64
"""Other sequences that a new one is compared with."""
SLOTS_EACH = 3
"""Slots that a running sequence always finds: its state, the next, and the one after accepted drafts. Without more a
sequence makes its way; what is kept for later texts takes what is over."""


class _Mark(NamedTuple):
    """The state after ``tokens`` tokens is, or will be, in ``slot``; whether it is ``kept`` for later texts."""

    tokens: int
    slot: int
    kept: bool = False


NOWHERE = _Mark(0, 0)
"""The beginning of every text."""


class StatePart(SequencePart):
    """``state`` is where the state after the computed tokens lies.

    Invariant: a slot is written once, by the step that it was taken for, and by nobody while others refer to it.
    """

    __slots__ = ("_ends", "_kept", "_last", "_replays", "_spare", "_stops", "group", "state")

    def __init__(self, group: StateGroup) -> None:
        self.group = group
        self.state = 0
        self._stops: set[int] = set()  # tokens after which a state is to be kept, whole pages of a prompt
        self._ends: list[_Mark] = []  # where the step leaves states, in order; the last is after its last known row
        self._spare = 0  # a slot for the state after accepted drafts
        self._kept: list[_Mark] = []  # states that will be snapshots
        self._last = NOWHERE  # of an answer, at the last end of a page
        self._replays: tuple[StateRun, ...] = ()

    # --- it comes ------------------------------------------------------------------------------------------------

    def _snapshot(self, cache: CachedText, tokens: int) -> StateSnapshot | None:
        """The state after the most of the first ``tokens`` tokens that can be had, wherever it is."""
        return self.group.snapshots.find(cache.namespace, cache.keys(tokens))

    def longest(self, cache: CachedText, tokens: int, pages: Sequence[int]) -> int:
        """Implements :meth:`SequencePart.longest`."""
        found = self._snapshot(cache, tokens)
        return 0 if found is None else found.tokens

    def opening(self, cache: CachedText) -> None:
        """Implements :meth:`SequencePart.opening`: where it leaves what is known, another text may do so too."""
        known = self.group.tree.matched(cache.namespace, cache.keys(cache.reusable)) * PAGE_SIZE
        self.stop_at(cache, known)
        self.stop_at(cache, (cache.prompt_length - GRACE) // PAGE_SIZE * PAGE_SIZE)

    def open(self, cache: CachedText) -> None:
        """Implements :meth:`SequencePart.open`."""
        found = None if self.state else self._snapshot(cache, cache.num_computed)
        if found is not None:
            self.group.snapshots.touch(found)
            if found.slot:
                self._hold(cache, found.slot)

    def _hold(self, cache: CachedText, slot: int) -> None:
        self.group.pool.retain([slot], cache.owner)
        self.state = slot
        self.group.running.add(self)

    def stop_at(self, cache: CachedText, tokens: int) -> None:
        """Leave a state after so many tokens, whole pages, if they are still to be read."""
        if cache.num_computed < tokens < len(cache.tokens):
            self._stops.add(tokens)

    def stops_at(self, tokens: int) -> bool:
        """Implements :meth:`SequencePart.stops_at`: a state is left there."""
        return tokens in self._stops

    def restore(self, cache: CachedText) -> bool:
        """Implements :meth:`SequencePart.restore`."""
        if self.state or not cache.num_computed:
            return True
        group, found = self.group, self._snapshot(cache, cache.num_computed)
        if found is None or found.tokens != cache.num_computed or not group.slots_left:
            return False
        self.state = group.take_slot(cache.owner)
        group.running.add(self)
        return found.held is not None and group.snapshots.bring(found, self.state)

    # --- it runs -------------------------------------------------------------------------------------------------

    def fits(self, cache: CachedText, rows: int) -> bool:
        """Implements :meth:`SequencePart.fits`."""
        planned = len({end.slot for end in self._ends} | {self._spare} - {0})
        return 1 + (rows > cache.pending) <= self.group.slots_left + planned

    def allocate(self, cache: CachedText, rows: int) -> None:
        """Implements :meth:`SequencePart.allocate`: takes slots for the states that the rows leave; the last rows are
        draft tokens if there are more than are known."""
        self._discard_plan(cache)
        group, known = self.group, min(rows, cache.pending)
        group.running.add(self)
        stop = cache.num_computed + known
        for mark in self._marks(cache, stop):
            if group.spares:
                self._ends.append(_Mark(mark, group.take_slot(cache.owner), True))
        if not self._ends or self._ends[-1].tokens != stop:
            self._ends.append(_Mark(stop, group.take_slot(cache.owner)))
        if rows > known:
            self._spare = group.take_slot(cache.owner)

    def _marks(self, cache: CachedText, stop: int) -> list[int]:
        """Tokens up to ``stop`` after which a state is worth keeping."""
        if cache.namespace is None:
            return []
        computed, prompt = cache.num_computed, cache.prompt_length
        marks = {tokens for tokens in self._stops if computed < tokens <= stop}
        marks |= set(range((computed // EVERY + 1) * EVERY, min(stop, prompt - 1) + 1, EVERY))
        last = stop // PAGE_SIZE * PAGE_SIZE
        if stop > prompt and last > max(computed, self._last.tokens):
            marks.add(last)
        return sorted(marks)

    def _discard_plan(self, cache: CachedText) -> None:
        """A step that was planned did not take place."""
        slots = [end.slot for end in self._ends] + [self._spare] * (self._spare > 0)
        self.group.pool.release(slots, cache.owner)
        self._ends, self._spare = [], 0

    def runs(self, cache: CachedText, drafts: int) -> tuple[StateRun, ...]:
        """Implements :meth:`SequencePart.runs`; the last one, without a target slot, is that of the drafts."""
        found, source, at = [], self.state, cache.num_computed
        for end in self._ends:
            found.append(StateRun(end.tokens - at, source, end.slot))
            source, at = end.slot, end.tokens
        return (*found, StateRun(drafts, source, 0)) if drafts else tuple(found)

    def advance(self, cache: CachedText, tokens: int) -> None:
        """Implements :meth:`SequencePart.advance`: the known rows of a step first, then accepted draft tokens."""
        if self._ends:
            assert self._ends[-1].tokens == cache.num_computed + tokens, "other rows were computed than were planned"
            self._go_on(cache)
        elif tokens:
            self._replay(cache, tokens)

    def _replay(self, cache: CachedText, tokens: int) -> None:
        """Plan what :meth:`take_replays` gives, for all sequences of a step before anything is moved."""
        stop = cache.num_computed + tokens
        for mark in self._marks(cache, stop)[-1:]:
            if self.group.spares:
                self._ends.append(_Mark(mark, self.group.take_slot(cache.owner), True))
        if not self._ends or self._ends[-1].tokens != stop:
            self._ends.append(_Mark(stop, self._spare))
            self._spare = 0
        self._replays = self.runs(cache, 0)
        # What others plan in this step must not write where this one will read.
        self.group.pool.retain([self.state], cache.owner)
        self._go_on(cache)

    def take_replays(self, cache: CachedText) -> tuple[StateRun, ...]:
        """Implements :meth:`SequencePart.take_replays`, once the step is done."""
        taken, self._replays = self._replays, ()
        if taken:
            self.group.pool.release([taken[0].source], cache.owner)
        return taken

    def _go_on(self, cache: CachedText) -> None:
        """The planned states are there."""
        slots = self.group.pool
        for end in self._ends:
            if self.state:
                slots.release([self.state], cache.owner)
            self.state = end.slot
            if not end.kept:
                continue
            slots.retain([end.slot], cache.owner)
            if end.tokens <= cache.prompt_length:
                self._kept.append(end)
                for part in cache.parts:
                    part.keep_at(cache, end.tokens, end.tokens in self._stops)
                continue
            if self._last.slot:
                slots.release([self._last.slot], cache.owner)
            self._last = end
        self._ends = []

    # --- it goes -------------------------------------------------------------------------------------------------

    def commit(self, cache: CachedText, before: int, ended: bool) -> None:
        """Implements :meth:`SequencePart.commit`: makes snapshots of the states that were to be kept, and, where
        ``ended``, of the last."""
        done, self._kept = self._kept, []
        if ended and self._last.slot:
            done, self._last = [*done, self._last], NOWHERE
        for mark in done:
            if cache.namespace is not None and self.group.packed_before(mark.tokens) <= cache.shared * PAGE_SIZE:
                asked = mark.tokens > cache.prompt_length or mark.tokens in self._stops
                self.group.snapshots.keep(cache.namespace, cache.keys(mark.tokens), mark.slot, asked)
            self.group.pool.release([mark.slot], cache.owner)

    def kept(self, cache: CachedText, tokens: int) -> list[int]:
        """Implements :meth:`SequencePart.kept`."""
        found = self._snapshot(cache, tokens)
        return [found.slot] if found is not None and found.slot and found.tokens == tokens else []

    def close(self, cache: CachedText) -> None:
        """Implements :meth:`SequencePart.close`."""
        self.group.pool.release_all(cache.owner)
        self.group.running.discard(self)
        self.state, self._spare, self._last, self._replays = 0, 0, NOWHERE, ()
        self._ends, self._kept = [], []

    # --- it waits in a tier below --------------------------------------------------------------------------------

    def offloaded(self, cache: CachedText) -> list[int]:
        """Implements :meth:`SequencePart.offloaded`; without a state, which lies in no slot, nothing can be kept."""
        return [self.state]

    def prepare(self, cache: CachedText) -> bool:
        """Implements :meth:`SequencePart.prepare`."""
        self.state = self.group.take_slot(cache.owner)
        self.group.running.add(self)
        return True


class StateGroup(CacheGroup[StatePart]):
    """Owns the slots that sequences and snapshots hold."""

    anywhere = False

    def __init__(self, pool: PagePool, tier: Tier | None = None, snapshot_tier: Tier | None = None) -> None:
        """``tier`` is for what sequences put in it, ``snapshot_tier`` for snapshots, which give way."""
        super().__init__(pool)
        self.tier, self._snapshot_tier = tier, snapshot_tier
        self.running: set[StatePart] = set()
        """Those that hold slots."""
        self._living = weakref.WeakKeyDictionary["CachedText", StatePart]()

    def join(self, tree: PrefixTree, packed: Callable[[int], int]) -> None:
        """Implements :meth:`CacheGroup.join`."""
        self.tree, self.packed_before = tree, packed
        self.snapshots = StateSnapshots(self.pool, self._reachable, self._snapshot_tier)

    def _reachable(self, namespace: Hashable, keys: Sequence[Key]) -> bool:
        """Return True if a text that goes on after these pages would find what is in pages of the pool."""
        pages = self.packed_before(len(keys) * PAGE_SIZE) // PAGE_SIZE
        return self.tree.matched(namespace, keys[:pages]) == pages

    def new(self, cache: CachedText) -> StatePart:
        """Implements :meth:`CacheGroup.new`. A state will be kept where the text branches off from others that are
        still to be read: whichever is read first leaves it to the other."""
        part = StatePart(self)
        for other, theirs in islice(self._living.items(), MOST_COMPARED) if cache.namespace is not None else ():
            if other.namespace == cache.namespace:
                alike = common(cache.keys(cache.reusable), other.keys(other.reusable)) * PAGE_SIZE
                part.stop_at(cache, alike)
                theirs.stop_at(other, alike)
        self._living[cache] = part
        return part

    @property
    def version(self) -> int:
        """Implements :attr:`CacheGroup.version`."""
        return self.snapshots.version

    @property
    def states(self) -> StateCounts:
        """Implements :attr:`CacheGroup.states`."""
        return StateCounts(self.pool.used_count, len(self.snapshots))

    def saved_pages(self, tokens: int) -> int:
        """Implements :meth:`CacheGroup.saved_pages`."""
        return 1

    def adopt(self, cache: CachedText, tokens: int, held: OffloadedPages) -> None:
        """Implements :meth:`CacheGroup.adopt`."""
        self.snapshots.adopt(cache.namespace, cache.keys(tokens), held)

    def admits(self, cache: CachedText, running: Sequence[CachedText], chunk: int) -> bool:
        """Implements :meth:`CacheGroup.admits`: all running sequences still find their slots."""
        return self.slots_left >= (SLOTS_EACH - 1) * len(running) + SLOTS_EACH - (self.of(cache) in self.running)

    def will_find(self, pages: int, other: CachedText) -> bool:
        """Implements :meth:`CacheGroup.will_find`: the other leaves a state where the texts part."""
        return self.of(other).stops_at(pages * PAGE_SIZE)

    @property
    def slots_left(self) -> int:
        """Slots that are free now or that snapshots would give up."""
        return self.pool.free_count + self.snapshots.evictable

    @property
    def spares(self) -> bool:
        """True if a slot is left for a state that a later text may begin with, beyond what running sequences need."""
        return self.slots_left > (SLOTS_EACH - 1) * len(self.running)

    def take_slot(self, owner: tuple[str, int]) -> int:
        """A free slot; there must be one, or a snapshot to give up."""
        self.snapshots.make_room(1)
        (slot,) = self.pool.allocate(1, owner)
        return slot

    def check(self, idle: bool = False) -> None:
        """Implements :meth:`CacheGroup.check`."""
        super().check(idle)
        self.snapshots.check()
