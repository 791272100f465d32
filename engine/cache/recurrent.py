"""Sequences that carry states besides their pages, for models with recurrent layers.

A state is in a slot of a second pool (`engine.cache.stores.states`). A step reads the state of a sequence from one slot
and leaves the next in another, and on its way states at the ends of some pages: near the end of a prompt, where another
text is known to branch off, and the last one of an answer so far. Those become snapshots
(`engine.cache.prefix.states`), from which later texts go on. What follows from drafts is computed again for those that
were accepted, from the state before them: no state of a rejected token is ever written.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from engine.cache.pool import PAGE_SIZE, PagePool, pages_for
from engine.cache.prefix.radix import PrefixTree
from engine.cache.prefix.states import StateSnapshot, StateSnapshots
from engine.cache.sequences import Content, KVCacheManager, NewSequence, SequenceCache, StateCounts, Swaps
from engine.cache.types import TREE, DraftKVLengths, OffloadedPages, StateRun, Tier, common

GRACE = 16
"""Tokens at the end of a prompt that may turn out otherwise in the next one, as templates write it in another way once
an answer follows: the state is kept at an end of a page before them."""
EVERY = 512
"""Tokens of a prompt after each of which a state is kept, in case another text leaves it there: the first to be given
up. (Without these, of four questions about one document the third was the first to find it.)"""
MOST_COMPARED = 64
"""Other sequences that a new one is compared with."""
SLOTS_EACH = 3
"""Slots that a running sequence always finds: its state, the next, and the one after accepted drafts. Without more a
sequence makes its way; what is kept for later texts takes what is over."""


@dataclass(eq=False, slots=True)
class HeldWithState:
    """A preempted sequence in a tier below: its pages and its state."""

    main: OffloadedPages
    state: OffloadedPages

    @property
    def place(self) -> str:
        return self.main.place


class StateSlots(NamedTuple):
    """The second pool; ``tier`` is for what sequences put in it, ``snapshot_tier`` for snapshots, which give way."""

    pool: PagePool
    tier: Tier | None = None
    snapshot_tier: Tier | None = None


class RecurrentManager(KVCacheManager):
    """Owns every slot, too, that sequences and snapshots hold."""

    def __init__(
        self,
        slots: StateSlots,
        pool: PagePool,
        tree: PrefixTree | None = None,
        content: Content | None = None,
        tier: Tier | None = None,
        swaps: Swaps = lambda cache, pages, more: False,
    ) -> None:
        super().__init__(pool, tree, content, tier, swaps)
        self.slots, self.state_tier = slots.pool, slots.tier
        kept = self.tree
        self.snapshots = StateSnapshots(
            slots.pool, lambda name, keys: kept.matched(name, keys) == len(keys), slots.snapshot_tier
        )
        self.running: set[RecurrentCache] = set()
        """Sequences that hold slots."""
        self._living = weakref.WeakSet[RecurrentCache]()

    def new(self, sequence: NewSequence) -> RecurrentCache:
        """Implements :meth:`KVCacheManager.new`. A state will be kept where the text branches off from others that are
        still to be read: whichever is read first leaves it to the other."""
        cache = RecurrentCache(self, sequence)
        for other in islice(self._living, MOST_COMPARED) if cache.namespace is not None else ():
            if other.namespace == cache.namespace:
                alike = common(cache.keys(cache.reusable), other.keys(other.reusable)) * PAGE_SIZE
                cache.stop_at(alike)
                other.stop_at(alike)
        self._living.add(cache)
        return cache

    @property
    def version(self) -> int:
        """Implements :attr:`KVCacheManager.version`."""
        return self.tree.version + self.snapshots.version

    @property
    def states(self) -> StateCounts:
        """Implements :attr:`KVCacheManager.states`."""
        return StateCounts(self.slots.used_count, len(self.snapshots))

    def admits(self, cache: SequenceCache, running: Sequence[SequenceCache], chunk: int) -> bool:
        """Implements :meth:`KVCacheManager.admits`: all running sequences still find their slots."""
        return self.slots_left >= (SLOTS_EACH - 1) * len(running) + SLOTS_EACH - (cache in self.running)

    def will_find(self, pages: int, other: SequenceCache) -> bool:
        """Implements :meth:`KVCacheManager.will_find`: the other leaves a state where the texts part."""
        assert isinstance(other, RecurrentCache)
        return other.stops_at(pages * PAGE_SIZE)

    @property
    def slots_left(self) -> int:
        """Slots that are free now or that snapshots would give up."""
        return self.slots.free_count + self.snapshots.evictable

    @property
    def spares(self) -> bool:
        """True if a slot is left for a state that a later text may begin with, beyond what running sequences need."""
        return self.slots_left > (SLOTS_EACH - 1) * len(self.running)

    def take_slot(self, owner: tuple[str, int]) -> int:
        """A free slot; there must be one, or a snapshot to give up."""
        self.snapshots.make_room(1)
        (slot,) = self.slots.allocate(1, owner)
        return slot

    def check(self, idle: bool = False) -> None:
        """Implements :meth:`KVCacheManager.check`."""
        self.slots.check()
        self.snapshots.check()
        strays = [owner for owner in self.slots.owners() if owner != TREE]
        assert not idle or not strays, f"states are held for {strays}, and nobody runs"


class _Mark(NamedTuple):
    """The state after ``tokens`` tokens is, or will be, in ``slot``; whether it is ``kept`` for later texts."""

    tokens: int
    slot: int
    kept: bool = False


NOWHERE = _Mark(0, 0)
"""The beginning of every text."""


class RecurrentCache(SequenceCache):
    """``state`` is where the state after the computed tokens lies.

    Invariant: a slot is written once, by the step that it was taken for, and by nobody while others refer to it.
    """

    __slots__ = ("__weakref__", "_ends", "_kept", "_last", "_replays", "_spare", "_stops", "state")
    manager: RecurrentManager

    def __init__(self, manager: RecurrentManager, sequence: NewSequence) -> None:
        super().__init__(manager, sequence)
        self.state = 0
        self._stops: set[int] = set()  # tokens after which a state is to be kept, whole pages of a prompt
        self._ends: list[_Mark] = []  # where the step leaves states, in order; the last is after its last known row
        self._spare = 0  # a slot for the state after accepted drafts
        self._kept: list[_Mark] = []  # states that will be snapshots
        self._last = NOWHERE  # of an answer, at the last end of a page
        self._replays: tuple[StateRun, ...] = ()

    # --- it comes ------------------------------------------------------------------------------------------------

    def _snapshot(self) -> StateSnapshot | None:
        """The longest beginning whose pages and state can be had, wherever they are."""
        keys = self.keys(self.reusable)
        pages = self.manager.tree.matched(self.namespace, keys)
        return self.manager.snapshots.find(self.namespace, keys[:pages])

    def _look_up(self) -> int:
        found = self._snapshot()
        return 0 if found is None else found.tokens

    def _open(self) -> None:
        """Pages and a state in a tier below are not among what it begins with yet."""
        manager, keys = self.manager, self.keys(self.reusable)
        # Where it leaves what is known, another text may do so too.
        self.stop_at(manager.tree.matched(self.namespace, keys) * PAGE_SIZE)
        self.stop_at((self.prompt_length - GRACE) // PAGE_SIZE * PAGE_SIZE)
        found = self._snapshot()
        if found is None:
            return
        match = manager.tree.match(self.namespace, found.keys)
        manager.tree.lock(match.node)
        manager.pool.retain(match.pages, self.owner)
        self.node, self.shared, self.pages = match.node, len(match.pages), list(match.pages)
        self.num_computed, self.drafts = found.tokens, match.drafted.at_most(found.tokens)
        manager.snapshots.touch(found)
        if found.slot:
            self._hold(found.slot)

    def _hold(self, slot: int) -> None:
        self.manager.slots.retain([slot], self.owner)
        self.state = slot
        self.manager.running.add(self)

    def stop_at(self, tokens: int) -> None:
        """Leave a state after so many tokens, whole pages, if they are still to be read."""
        if self.num_computed < tokens < len(self.tokens):
            self._stops.add(tokens)

    def stops_at(self, tokens: int) -> bool:
        """Return True if the sequence leaves, or has left, a state after its first ``tokens`` tokens."""
        return tokens in self._stops

    def _restore(self) -> None:
        tokens = self.num_computed
        if not tokens:
            return
        self._restore_pages(self.keys(tokens))
        self.num_computed = tokens
        if len(self.pages) * PAGE_SIZE != tokens or not self._bring_state(tokens):
            self.close()

    def _bring_state(self, tokens: int) -> bool:
        if self.state:
            return True
        manager = self.manager
        found = manager.snapshots.find(self.namespace, self.keys(tokens))
        if found is None or found.tokens != tokens:
            return False
        if found.slot:
            self._hold(found.slot)
            return True
        if not manager.slots_left:
            return False
        slot = manager.take_slot(self.owner)
        self.state = slot
        manager.running.add(self)
        return found.held is not None and manager.snapshots.bring(found, slot)

    def _fork(self) -> bool:
        """States are kept at ends of pages, so another answer to the same prompt begins at one, as any text does."""
        return False

    # --- it runs -------------------------------------------------------------------------------------------------

    def fits(self, rows: int) -> bool:
        """Implements :meth:`SequenceCache.fits`."""
        planned = len({end.slot for end in self._ends} | {self._spare} - {0})
        return super().fits(rows) and 1 + (rows > self.pending) <= self.manager.slots_left + planned

    def allocate(self, rows: int) -> None:
        """Implements :meth:`SequenceCache.allocate`, and takes slots for the states that the rows leave; the last rows
        are draft tokens if there are more than are known."""
        super().allocate(rows)
        self._discard_plan()
        manager, known = self.manager, min(rows, self.pending)
        manager.running.add(self)
        stop = self.num_computed + known
        for mark in self._marks(stop):
            if manager.spares:
                self._ends.append(_Mark(mark, manager.take_slot(self.owner), True))
        if not self._ends or self._ends[-1].tokens != stop:
            self._ends.append(_Mark(stop, manager.take_slot(self.owner)))
        if rows > known:
            self._spare = manager.take_slot(self.owner)

    def _marks(self, stop: int) -> list[int]:
        """Tokens up to ``stop`` after which a state is worth keeping."""
        if self.namespace is None:
            return []
        marks = {tokens for tokens in self._stops if self.num_computed < tokens <= stop}
        marks |= set(range((self.num_computed // EVERY + 1) * EVERY, min(stop, self.prompt_length - 1) + 1, EVERY))
        last = stop // PAGE_SIZE * PAGE_SIZE
        if stop > self.prompt_length and last > max(self.num_computed, self._last.tokens):
            marks.add(last)
        return sorted(marks)

    def _discard_plan(self) -> None:
        """A step that was planned did not take place."""
        slots = [end.slot for end in self._ends] + [self._spare] * (self._spare > 0)
        self.manager.slots.release(slots, self.owner)
        self._ends, self._spare = [], 0

    def runs(self, drafts: int) -> tuple[StateRun, ...]:
        """Runs that advance the state in the planned step; the last one, without a target slot, is that of ``drafts``
        draft tokens, if any."""
        found, source, at = [], self.state, self.num_computed
        for end in self._ends:
            found.append(StateRun(end.tokens - at, source, end.slot))
            source, at = end.slot, end.tokens
        return (*found, StateRun(drafts, source, 0)) if drafts else tuple(found)

    def advance(self, tokens: int) -> None:
        """Implements :meth:`SequenceCache.advance`: the known rows of a step first, then accepted draft tokens."""
        if self._ends:
            assert self._ends[-1].tokens == self.num_computed + tokens, "other rows were computed than were planned"
            self._go_on()
        elif tokens:
            self._replay(tokens)
        super().advance(tokens)

    def _replay(self, tokens: int) -> None:
        """Plan what :meth:`take_replays` gives, for all sequences of a step before anything is moved."""
        stop = self.num_computed + tokens
        for mark in self._marks(stop)[-1:]:
            if self.manager.spares:
                self._ends.append(_Mark(mark, self.manager.take_slot(self.owner), True))
        if not self._ends or self._ends[-1].tokens != stop:
            self._ends.append(_Mark(stop, self._spare))
            self._spare = 0
        self._replays = self.runs(0)
        # What others plan in this step must not write where this one will read.
        self.manager.slots.retain([self.state], self.owner)
        self._go_on()

    def take_replays(self) -> tuple[StateRun, ...]:
        """Take the runs that advance the state over accepted draft tokens once their step is done; () if none were
        accepted."""
        taken, self._replays = self._replays, ()
        if taken:
            self.manager.slots.release([taken[0].source], self.owner)
        return taken

    def _go_on(self) -> None:
        """The planned states are there."""
        slots = self.manager.slots
        for end in self._ends:
            if self.state:
                slots.release([self.state], self.owner)
            self.state = end.slot
            if not end.kept:
                continue
            slots.retain([end.slot], self.owner)
            if end.tokens <= self.prompt_length:
                self._kept.append(end)
                continue
            if self._last.slot:
                slots.release([self._last.slot], self.owner)
            self._last = end
        self._ends = []

    # --- it goes -------------------------------------------------------------------------------------------------

    def commit(self, ended: bool = True) -> None:
        """Implements :meth:`SequenceCache.commit`: makes snapshots of the states that were to be kept, and, where
        ``ended``, of the last."""
        super().commit(ended)
        done, self._kept = self._kept, []
        if ended and self._last.slot:
            done, self._last = [*done, self._last], NOWHERE
        for mark in done:
            if self.namespace is not None and mark.tokens <= self.shared * PAGE_SIZE:
                asked = mark.tokens > self.prompt_length or mark.tokens in self._stops
                self.manager.snapshots.keep(self.namespace, self.keys(mark.tokens), mark.slot, asked)
            self.manager.slots.release([mark.slot], self.owner)

    def last_kept(self) -> tuple[int, int] | None:
        """Implements :meth:`SequenceCache.last_kept`."""
        self.commit()
        found = self.manager.snapshots.find(self.namespace, self.keys(min(self.num_computed, self.shareable)))
        return (found.tokens, found.slot) if found is not None and found.slot else None

    def close(self) -> None:
        """Implements :meth:`SequenceCache.close`."""
        super().close()
        self.manager.slots.release_all(self.owner)
        self.manager.running.discard(self)
        self.state, self._spare, self._last, self._replays = 0, 0, NOWHERE, ()
        self._ends, self._kept = [], []

    # --- it waits in a tier below --------------------------------------------------------------------------------

    def _put(self) -> tuple[OffloadedPages, DraftKVLengths] | None:
        manager, pages = self.manager, self.pages[: pages_for(self.num_computed)]
        main, below = manager.tier, manager.state_tier
        if main is None or below is None or not pages or 0 in pages or not self.state:
            return None
        if not manager.swaps(self, len(pages), 1):
            return None
        above = main.put(pages, keep=True)
        state = below.put([self.state], keep=True) if above is not None else None
        if above is None or state is None:
            if above is not None:
                main.drop(above)
            return None
        return HeldWithState(above, state), self.drafts

    def _take(self, held: OffloadedPages) -> bool:
        manager = self.manager
        assert isinstance(held, HeldWithState)
        assert manager.tier is not None
        assert manager.state_tier is not None
        self.state = manager.take_slot(self.owner)
        manager.running.add(self)
        found = manager.tier.take(held.main, self.pages)
        if manager.state_tier.take(held.state, [self.state]) and found:
            return True
        manager.slots.release([self.state], self.owner)
        self.state = 0
        return False

    def _drop(self, held: OffloadedPages) -> None:
        assert isinstance(held, HeldWithState)
        assert self.manager.state_tier is not None
        super()._drop(held.main)
        self.manager.state_tier.drop(held.state)
