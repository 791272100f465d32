"""States of texts at ends of pages, kept so that a later text that begins alike goes on from there.

The prefix tree keeps the keys and values of a text, a snapshot what layers with states (`engine.cache.stores.states`)
were in after some of its pages. A look-up ends where both are at hand. It knows slots and keys, no tensors. Those that
are not in use give way to sequences: first those whose pages the tree has lost, then the ones used longest ago, which
a tier below may keep.

Where snapshots pay, and that a second text shows where texts branch off, is from Marconi (Pan et al. 2024, arXiv
2411.19379).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from engine.cache.pool import PAGE_SIZE, PagePool
from engine.cache.types import TREE, Key, OffloadedPages, Tier

_Place = tuple[Hashable, int, Key]


class StateSnapshot:
    """The state after the pages of ``keys``: in ``slot`` of the device, or ``held`` by a tier below."""

    __slots__ = ("held", "keys", "namespace", "slot")

    def __init__(self, namespace: Hashable, keys: list[Key], slot: int) -> None:
        self.namespace, self.keys, self.slot = namespace, keys, slot
        self.held: OffloadedPages | None = None

    @property
    def tokens(self) -> int:
        return len(self.keys) * PAGE_SIZE

    @property
    def place(self) -> _Place:
        """Look-up key, which a text's own pages lead to. It holds the last page's key alone: `find` compares the
        others."""
        return self.namespace, len(self.keys), self.keys[-1]


class StateSnapshots:
    """Owns one reference to the slot of each snapshot on the device."""

    def __init__(
        self, pool: PagePool, reachable: Callable[[Hashable, Sequence[Key]], bool], tier: Tier | None = None
    ) -> None:
        """``pool`` is that of slots. ``reachable(namespace, keys)``: whether the pages of these keys can be had."""
        self.pool, self.tier, self._reachable = pool, tier, reachable
        self.version = 0  # changes with every snapshot that comes or goes
        self._all: dict[StateSnapshot, None] = {}  # the longest unused first
        self._at: dict[_Place, list[StateSnapshot]] = {}
        self._lengths: dict[Hashable, Counter[int]] = {}
        self._holders: dict[OffloadedPages, StateSnapshot] = {}
        if tier is not None:
            tier.dropped = self._lost

    def __len__(self) -> int:
        return len(self._all)

    @property
    def on_device(self) -> int:
        """Number of snapshots that are in slots of the device."""
        return len(self._all) - len(self._holders)

    @property
    def evictable(self) -> int:
        """Slots that would be free if all snapshots were given up."""
        return sum(1 for each in self._all if each.slot and self.pool.refs(each.slot) == 1)

    def find(self, namespace: Hashable, keys: Sequence[Key]) -> StateSnapshot | None:
        """The one after the most of these pages, wherever it is; changes nothing."""
        for length in sorted(self._lengths.get(namespace, ()), reverse=True):
            if length > len(keys):
                continue
            for each in self._at.get((namespace, length, keys[length - 1]), ()):
                if each.keys == keys[:length]:
                    return each
        return None

    def touch(self, snapshot: StateSnapshot) -> None:
        """Mark the snapshot as used now."""
        del self._all[snapshot]
        self._all[snapshot] = None

    def keep(self, namespace: Hashable, keys: list[Key], slot: int, asked: bool = True) -> None:
        """Refer to the slot, the state after the pages of ``keys``, at least one; where one is kept already, that.

        One that is not ``asked`` for is the first to be given up.
        """
        new = StateSnapshot(namespace, keys, slot)
        known = next((each for each in self._at.get(new.place, ()) if each.keys == keys), None)
        if known is not None and known.slot:
            self.touch(known)
            return
        if known is not None:
            self._drop(known)
        self.pool.retain([slot], TREE)
        self._add(new)
        if not asked:
            self._all = {new: None, **self._all}

    def adopt(self, namespace: Hashable, keys: list[Key], held: OffloadedPages) -> None:
        """Know of a state that a tier holds, unless one is known there."""
        new = StateSnapshot(namespace, keys, 0)
        if any(each.keys == keys for each in self._at.get(new.place, ())):
            return
        new.held = held
        self._holders[held] = new
        self._add(new)

    def _add(self, new: StateSnapshot) -> None:
        self._all[new] = None
        self._at.setdefault(new.place, []).append(new)
        self._lengths.setdefault(new.namespace, Counter())[len(new.keys)] += 1
        self.version += 1

    def bring(self, snapshot: StateSnapshot, slot: int) -> bool:
        """Bring a snapshot from the tier below to a slot, of which it takes a reference; False: it is lost."""
        held, snapshot.held = snapshot.held, None
        assert held is not None
        assert self.tier is not None
        del self._holders[held]
        if not self.tier.take(held, [slot]):
            self._drop(snapshot)
            return False
        self.pool.retain([slot], TREE)
        snapshot.slot = slot
        self.touch(snapshot)
        return True

    def make_room(self, free: int) -> bool:
        """Give snapshots up until ``free`` slots are free: useless ones first, then the least recently used."""
        if self.pool.free_count >= free:
            return True
        for each in [each for each in self._all if not self._reachable(each.namespace, each.keys)]:
            self._drop(each)
        for each in list(self._all):
            if self.pool.free_count >= free:
                break
            if each.slot and self.pool.refs(each.slot) == 1:
                self._give_up(each)
        return self.pool.free_count >= free

    def _give_up(self, snapshot: StateSnapshot) -> None:
        """Free its slot; a tier below may keep the state."""
        held = self.tier.put([snapshot.slot]) if self.tier is not None else None
        if held is None:
            self._drop(snapshot)
            return
        self.pool.release([snapshot.slot], TREE)
        snapshot.slot, snapshot.held = 0, held
        self._holders[held] = snapshot

    def _lost(self, held: OffloadedPages) -> None:
        """The tier gave up what a snapshot held."""
        snapshot = self._holders.pop(held, None)
        if snapshot is not None:
            snapshot.held = None
            self._drop(snapshot)

    def _drop(self, snapshot: StateSnapshot) -> None:
        del self._all[snapshot]
        here, lengths = self._at[snapshot.place], self._lengths[snapshot.namespace]
        here.remove(snapshot)
        if not here:
            del self._at[snapshot.place]
        lengths[len(snapshot.keys)] -= 1
        if not lengths[len(snapshot.keys)]:
            del lengths[len(snapshot.keys)]
        if snapshot.slot:
            self.pool.release([snapshot.slot], TREE)
        if snapshot.held is not None and self.tier is not None:
            del self._holders[snapshot.held]
            self.tier.drop(snapshot.held)
        self.version += 1

    def check(self) -> None:
        """Prove that the books agree with the ledger. Raises AssertionError."""
        slots = [each.slot for each in self._all if each.slot]
        assert len(set(slots)) == len(slots), "a slot is in two snapshots"
        assert sorted(slots) == sorted(self.pool.owned_by(TREE)), "snapshots and the ledger disagree"
        assert {each for here in self._at.values() for each in here} == set(self._all), "a snapshot cannot be found"
        assert {each.held: each for each in self._all if each.held is not None} == self._holders
        for each in self._all:
            assert each.keys, "a snapshot of the beginning"
            assert (each.slot == 0) == (each.held is not None), "a snapshot is neither here nor there"
            assert each in self._at[each.place]
        lengths = Counter((each.namespace, len(each.keys)) for each in self._all)
        kept = {(namespace, n): count for namespace, some in self._lengths.items() for n, count in some.items()}
        assert lengths == kept, "the lengths of snapshots are counted wrongly"
