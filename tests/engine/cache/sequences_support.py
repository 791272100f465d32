"""Sequences over pages whose content is known: what a step reads must be what was written for that very text."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch

from engine.cache.groups.base import AnyGroup
from engine.cache.groups.residual import ResidualGroup
from engine.cache.groups.state import StateGroup
from engine.cache.groups.window import WindowGroup
from engine.cache.manager import KVCacheManager
from engine.cache.offload.swap import SwapSpace
from engine.cache.policies import KeepAll, PagePolicy, WindowWithSinks
from engine.cache.pool import PAGE_SIZE, PagePool, pages_for
from engine.cache.prefix.radix import PrefixTree
from engine.cache.sequences import SequenceCache
from engine.cache.slots import WindowSlots
from engine.cache.stores.packed import CHANNEL_GROUP
from engine.cache.stores.recent import packed_until, to_pack
from engine.cache.stores.windowed import WindowedStore
from engine.cache.techniques.quest.policy import QuestPolicy
from engine.cache.text import NewSequence
from engine.cache.tiers import Tiers
from engine.cache.types import TREE, DraftKVLengths, StateRun
from engine.decoding.scheduling.plan import Limits, Plan
from engine.decoding.scheduling.policy import QueueStanding, SchedulingPolicy
from engine.decoding.scheduling.scheduler import Scheduler

G = TypeVar("G", bound=AnyGroup)
SPARSE = 1_000_003
"""What a row that chooses pages computes is nobody else's."""


class Arena:
    """A store whose "keys" are digests of the text up to each token."""

    device = torch.device("cpu")
    page_bytes = PAGE_SIZE * 8
    page_layout = "digests"
    ranks_pages = hadamard = False
    recent, residual = None, 0

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.slots = np.zeros((pages, PAGE_SIZE), dtype=np.int64)

    def view(self, layer: int) -> None:
        return None

    def copy_page(self, src: int, dst: int) -> None:
        self.slots[dst] = self.slots[src]

    def export_pages(self, pages: Sequence[int], out: torch.Tensor | None = None) -> torch.Tensor:
        data = torch.from_numpy(self.slots[list(pages)].view(np.uint8).copy())
        return data if out is None else out.copy_(data)

    def import_pages(self, pages: Sequence[int], data: torch.Tensor) -> None:
        self.slots[list(pages)] = data.numpy().view(np.int64)

    def write(self, pages: Sequence[int], first: int, values: np.ndarray) -> None:
        if len(values):
            places = np.arange(first, first + len(values))
            table = np.array(pages)[places // PAGE_SIZE]
            assert table.all(), "a row is written to nobody's page"
            self.slots[table, places % PAGE_SIZE] = values

    def expect(self, pages: Sequence[int], places: np.ndarray, digests: np.ndarray) -> None:
        """Prove that these places of a text are what they should be."""
        if len(places):
            table = np.array(pages)[places // PAGE_SIZE]
            assert table.all(), "a row reads a page that was given up"
            found = self.slots[table, places % PAGE_SIZE]
            assert (found == digests[places]).all(), "pages hold another text"


@dataclass(eq=False)
class Asked:
    """One answer; its tokens follow from what it has read, so that nobody else's text is ever the same by chance."""

    arrival: int
    answer: int
    tokens: list[int]
    most: int
    policy: PagePolicy = field(default_factory=KeepAll)
    cached: bool = True
    drafting: bool = False
    namespace: int | None = 0
    alphabet: int = 2
    standing: QueueStanding = field(default_factory=QueueStanding)
    fork_of: Asked | None = None
    computed_rows: int = 0
    cache: SequenceCache = field(init=False)
    """Its house gives it."""

    def __post_init__(self) -> None:
        self.prompt_length = len(self.tokens)
        self._digests, self._digested = np.empty(self.reach + 1, dtype=np.int64), 0

    @property
    def owner(self) -> tuple[str, int]:
        return str(self.arrival), 0

    @property
    def known(self) -> int:
        return len(self.tokens)

    @property
    def num_computed(self) -> int:
        return self.cache.num_computed

    @property
    def pages(self) -> list[int]:
        return self.cache.pages

    @property
    def reach(self) -> int:
        return self.prompt_length + self.most

    @property
    def max_draft_tokens(self) -> int:
        return max(0, self.reach - self.known - 1)

    def digest(self) -> np.ndarray:
        """[known] Of each token that is known, with all before it."""
        for at in range(self._digested, self.known):
            sparse = SPARSE if isinstance(self.policy, QuestPolicy) and at >= self.prompt_length else 0
            before = int(self._digests[at - 1]) if at else (self.namespace or 0)
            self._digests[at] = hash((before, self.tokens[at], sparse))
        self._digested = self.known
        return self._digests[: self.known]

    def next_token(self) -> int:
        return hash((int(self.digest()[-1]), self.answer % 2)) % self.alphabet

    def seen(self) -> np.ndarray:
        """Places before the step's rows that rows from the first of them on may read."""
        first, stop = self.cache.dead_pages
        places = np.arange(self.num_computed)
        return places if first >= stop else places[(places < first * PAGE_SIZE) | (places >= stop * PAGE_SIZE)]


class House:
    """A scheduler over memory with everything, stepped by hand; all books are proved after each operation."""

    def __init__(
        self,
        pages: int,
        host: int = 0,
        swaps: Callable[[], bool] = lambda: True,
        residual: int = 0,
        recent_pages: int = 0,
        limits: Limits = Limits(64),
        states: int = 0,
        window: int = 0,
        slots: int = 0,
    ) -> None:
        self.pool, self.limits, self.residual = PagePool(pages), limits, residual
        self.target, self.draft = Arena(pages), Arena(pages)
        self.windowed = Arena(slots) if window else None
        store = self.target
        if self.windowed is not None:
            store = WindowedStore(self.target, self.windowed, pages, [None, window])  # type: ignore[arg-type, assignment]
            store.slots = WindowSlots(pages, slots, window, residual)  # type: ignore[attr-defined]
        self.window = window
        self.space = SwapSpace(host * 2 * self.target.page_bytes)
        self.tiers = Tiers([store, self.draft], self.space)  # type: ignore[list-item]
        self.tree = PrefixTree(self.pool, lambda: 0.0, self.tiers)
        self.recent = PagePool(recent_pages) if residual else None
        self.fresh = Arena(recent_pages) if residual else None
        groups: list[AnyGroup] = []
        if self.recent is not None and self.fresh is not None:
            tier = Tiers([self.fresh], self.space, gives_way=False)  # type: ignore[list-item]
            groups.append(ResidualGroup(self.recent, residual, self.fresh, tier))
        if self.windowed is not None:
            groups.append(WindowGroup(store.slots, self.windowed))  # type: ignore[arg-type]
        self.states = Arena(states) if states else None
        """The state after a text is the digest of its last token; at its beginning it is 0."""
        if self.states is not None:
            stores = [self.states]
            tiers = Tiers(stores, self.space, gives_way=False), Tiers(stores, self.space)  # type: ignore[arg-type]
            groups.append(StateGroup(PagePool(states), *tiers))
        self.manager = KVCacheManager(self.pool, self.tree, self, self.tiers, lambda *_: swaps(), groups)
        self.scheduler: Scheduler[Asked] = Scheduler(self.manager, SchedulingPolicy())
        self.scheduler.policy.prefix_first = True
        self.plans: list[Plan[Asked]] = []
        self.done: list[Asked] = []
        self.failed: list[Asked] = []
        self.draft_tokens = 0
        self.accepts: Callable[[int], int] = lambda draft_tokens: 0

    def group(self, kind: type[G]) -> G:
        return next(group for group in self.manager.groups if isinstance(group, kind))

    def copy_page(self, src: int, dst: int) -> None:
        self.target.copy_page(src, dst)
        self.draft.copy_page(src, dst)

    @property
    def everybody(self) -> list[Asked]:
        return [*self.scheduler.running, *self.scheduler.waiting]

    def admit(self, asked: Asked) -> Asked:
        """Give it a cache."""
        other = asked.fork_of.cache if asked.fork_of is not None else None
        asked.cache = SequenceCache(
            self.manager, NewSequence(asked.owner, asked.tokens, asked.policy, asked.namespace, fork_of=other)
        )
        return asked

    def add(self, asked: Asked) -> Asked:
        self.scheduler.add(self.admit(asked))
        return asked

    def cancel(self, asked: Asked) -> None:
        self.scheduler.remove(asked)
        self.check()

    def step(self) -> Plan[Asked]:
        wanted = {asked.owner: self.draft_tokens for asked in self.scheduler.running}
        plan = self.scheduler.plan(self.limits, wanted)
        self.plans.append(plan)
        self.check()
        for asked in plan.failed:
            self.scheduler.remove(asked)
            self.failed.append(asked)
        for piece in plan.slices:  # all read before anybody writes, and after: a step's rows are computed at once
            self._read(piece.sequence)
        for piece in plan.slices:
            self._write(piece.sequence, piece.rows, piece.drafts)
        for piece in plan.slices:
            self._read(piece.sequence)
        starts = [self._advance(piece.sequence, piece.rows, piece.last, piece.drafts) for piece in plan.slices]
        self._replay([(piece.sequence, start) for piece, start in zip(plan.slices, starts, strict=True)])
        for piece in plan.slices:
            self._settle(piece.sequence, piece.last)
        self.check()
        return plan

    def _read(self, asked: Asked) -> None:
        digests, seen = asked.digest(), asked.seen()
        if self.windowed is not None:
            first, stop = asked.num_computed + 1 - self.window, asked.num_computed
            if self.residual:  # packed tokens are read in groups
                first, stop = first // CHANNEL_GROUP * CHANNEL_GROUP, packed_until(stop - 1, self.residual)
            near = seen[(seen >= first) & (seen < stop)]
            self.windowed.expect(asked.cache.more_pages[-1], near, digests)
        if self.fresh is not None:
            packed = packed_until(asked.num_computed - 1, self.residual)
            self.fresh.expect(asked.cache.newest_pages, seen[seen >= packed], digests)
            seen = seen[seen < packed]
        self.target.expect(asked.pages, seen, digests)
        self.draft.expect(asked.pages, np.arange(asked.cache.drafts.model), digests)

    def _write(self, asked: Asked, rows: int, drafts: int) -> None:
        digests, start = asked.digest(), asked.num_computed
        stop = start + rows
        asked.computed_rows += rows
        wrong = np.full(drafts, -1)
        values = np.append(digests[start:stop], wrong)
        if self.fresh is None:
            self.target.write(asked.pages, start, values)
            if self.windowed is not None:
                self.windowed.write(asked.cache.more_pages[-1], start, values)
        else:
            self.fresh.write(asked.cache.newest_pages, start, values)
            packed = to_pack(start, rows + drafts, self.residual)
            self.fresh.expect(asked.cache.newest_pages, np.arange(packed.start, packed.stop), digests)
            self.target.write(asked.pages, packed.start, digests[packed.start : packed.stop])
            table = asked.cache.more_pages[-1]
            for at in packed if self.windowed is not None else ():
                if table[at // PAGE_SIZE]:  # else no window sees it any more
                    self.windowed.write(table, at, digests[at : at + 1])  # type: ignore[union-attr]
        self._move_on(asked, asked.cache.runs(drafts), start)
        if asked.drafting:
            start = asked.cache.drafts.model
            self.draft.write(asked.pages, start, np.append(digests[start:stop], wrong))
            asked.cache.drafts = DraftKVLengths(stop)

    def _advance(self, asked: Asked, rows: int, last: bool, drafts: int) -> int:
        """Returns the place of its first accepted draft token."""
        asked.cache.advance(rows)
        if not last:
            return 0
        accepted = min(drafts, self.accepts(drafts))
        start = asked.num_computed
        for at in range(start, start + accepted):  # the drafts were right after all
            asked.tokens.append(asked.next_token())
            arena = self.target if self.fresh is None else self.fresh
            arena.write(asked.cache.newest_pages, at, asked.digest()[at : at + 1])
            if self.windowed is not None and self.fresh is None:
                self.windowed.write(asked.cache.more_pages[-1], at, asked.digest()[at : at + 1])
        asked.cache.advance(accepted)
        asked.tokens.append(asked.next_token())
        return start

    def _replay(self, moved: Sequence[tuple[Asked, int]]) -> None:
        """All sequences at once: none may read what another one writes."""
        replays = [(asked, asked.cache.take_replays(), start) for asked, start in moved]
        sources = [runs[0].source for _, runs, _ in replays if runs]
        targets = [run.target for _, runs, _ in replays for run in runs]
        assert not set(sources) & set(targets), "a state is overwritten while another is made of it"
        assert len(set(targets)) == len(targets)
        for asked, runs, start in replays:
            self._move_on(asked, runs, start)

    def _settle(self, asked: Asked, last: bool) -> None:
        if not last:
            self.scheduler.read(asked)
        elif asked.known >= asked.reach:
            self.scheduler.remove(asked)
            self.done.append(asked)
        else:
            self.scheduler.settle(asked, self.limits)

    def _move_on(self, asked: Asked, runs: Sequence[StateRun], at: int) -> None:
        """Read and write states as a step does whose first row is the text's place ``at``."""
        if self.states is None:
            assert not runs
            return
        digests, state = asked.digest(), self.states.slots
        for run in runs:
            assert state[run.source, 0] == (digests[at - 1] if at else 0), "a state is that of another text"
            at += run.rows
            if run.target:
                group = self.group(StateGroup)
                here = group.of(asked.cache).state == run.target
                assert group.pool.refs(run.target) - here <= 1, "a shared slot is written"
                state[run.target] = digests[at - 1] if at <= len(digests) else -1

    def check(self) -> None:
        self.pool.check()
        self.tree.check()
        self.space.check()
        self.manager.check()
        theirs = {page: node for node in self.tree.nodes() for page in node.pages}
        for asked in self.everybody:
            shared, last = asked.cache.shared, asked.cache.node
            path = [page for node in (reversed(list(last.path())) if last else ()) for page in node.pages]
            assert asked.pages[:shared] == path[:shared], "shared pages are not the tree's"
            for page in asked.pages:
                assert page not in theirs or theirs[page].locks, "a page that is read could be evicted"
        for asked in self.scheduler.waiting:
            assert not asked.pages
            assert not asked.cache.newest_pages
            assert not any(asked.cache.more_pages)
            assert asked.num_computed == 0 or asked.cache.held is not None

    def drain(self, limit: int = 20_000) -> None:
        for _ in range(limit):
            if not self.everybody:
                break
            self.step()
        else:
            raise AssertionError("never done: somebody starves")
        assert self.pool.owners() in ([], [TREE])
        assert self.tree.evictable == self.tree.pages
        assert self.space.counts.evictable == self.space.counts.size, "a preempted answer is still kept"
        assert self.recent is None or self.recent.owners() in ([], [TREE])
        self.manager.check(idle=True)
        self.tree.evict(1 << 30)
        assert self.pool.used_count == 0
        if self.windowed is not None:
            assert self.group(WindowGroup).pool.used_count == 0


def text(rng: random.Random, roots: int = 3) -> list[int]:
    """A text that begins as others do: whole pages of a common one, a part of its next, then its own."""
    root = random.Random(rng.randrange(roots))
    common = [root.randrange(2) for _ in range(160)]
    return common[: rng.randrange(0, 120)] + [rng.randrange(2) for _ in range(rng.randrange(1, 60))]


def prompt(*runs: tuple[int, int]) -> list[int]:
    """(letter, count) one after the other."""
    return [letter for letter, count in runs for _ in range(count)]


def run(house: House, steps: int) -> None:
    for _ in range(steps):
        house.step()


def policy(rng: random.Random, length: int) -> PagePolicy:
    return rng.choice([KeepAll(), KeepAll(), KeepAll(), WindowWithSinks(64), QuestPolicy(32, length)])


class Fuzz:
    """Random operations over one house of a kind, all proved as they go.

    The kind names what a sequence has beside its pages: "recent", "windows", "states", or several of these.
    """

    def __init__(self, seed: int, kind: str) -> None:
        rng = self.rng = random.Random(seed)
        residual = rng.choice([64, 96]) if "recent" in kind else 0
        self.host = rng.choice([0, 0, 3, 12, 100])
        mode = rng.choice(["swap", "recompute", "either"])
        swaps: Callable[[], bool] = {
            "swap": lambda: True,
            "recompute": lambda: False,
            "either": lambda: rng.random() < 0.5,
        }[mode]
        options = {"residual": residual, "pages": rng.choice([14, 18, 26, 60])}
        options["recent_pages"] = rng.choice([12, 20, 40])
        if "states" in kind:
            options["states"] = rng.choice([5, 7, 12, 60])
        if "windows" in kind:
            window = options["window"] = rng.choice([1, 7, 16, 40, 100])
            options["slots"] = 3 + pages_for(window - 1) + (2 if residual else 1) + rng.choice([0, 1, 3, 9, 40])
        self.house = House(host=self.host, swaps=swaps, **options)
        self.house.accepts = lambda draft_tokens: rng.randint(0, draft_tokens)
        self.arrivals = 0

    def play(self, operations: int) -> None:
        for _ in range(operations):
            if len(self.house.everybody) > 24:
                self.house.step()
            else:
                self.rng.choices([self.add, self.house.step, self.cancel, self.disturb], [20, 70, 4, 6])[0]()
        self.house.drain()
        for asked in self.house.failed:
            assert pages_for(asked.known + 1) > self.house.pool.total, "failed although it fits alone"

    def add(self) -> None:
        rng, house = self.rng, self.house
        asked = text(rng)
        if rng.random() < 0.3 and house.done:  # somebody goes on with a conversation
            asked = (rng.choice(house.done[-10:]).tokens + asked[: rng.randrange(1, 30)])[:300]
        pages = policy(rng, len(asked))
        cached = rng.random() < 0.93
        private = isinstance(pages, WindowWithSinks) or not cached or rng.random() < 0.1
        namespace = None if private else rng.choice([0, 0, 0, 1])
        first: Asked | None = None
        for answer in range(rng.choice([1, 1, 1, 2, 4])):
            self.arrivals += 1
            one = Asked(
                self.arrivals, answer, list(asked), rng.randrange(1, 70), KeepAll() if house.residual else pages,
                cached, cached and not isinstance(pages, WindowWithSinks) and rng.random() < 0.5, namespace,
                rng.choice([1, 2]), fork_of=first,
            )  # fmt: skip
            first = first or house.add(one)
            if one is not first:
                house.add(one)

    def cancel(self) -> None:
        if self.house.everybody:
            self.house.cancel(self.rng.choice(self.house.everybody))

    def disturb(self) -> None:
        rng, house = self.rng, self.house
        match rng.randrange(6):
            case 0:
                house.limits = Limits(rng.choice([16, 33, 64, 512]), rng.random() < 0.8, rng.random() < 0.2)
            case 1:
                house.tree.evict(rng.randrange(1, 8))
            case 2:
                house.space.resize(rng.choice([self.host, 0, 2]) * 2 * house.target.page_bytes)
            case 3:
                house.draft_tokens = rng.choice([0, 0, 3, 9])
            case 4:
                if house.scheduler.running:
                    house.scheduler.preempt(rng.choice(house.scheduler.running))
            case 5:
                for asked in house.everybody:  # the arithmetic changed
                    if rng.random() < 0.3:
                        asked.cache.stop_sharing()
        house.check()
