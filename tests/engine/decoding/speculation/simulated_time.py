"""A controller in simulated time: steps cost what a formula says, drafts hold by chance, no models anywhere."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from engine.decoding.options import RequestOptions
from engine.decoding.scheduling.plan import Slice
from engine.decoding.speculation.base import NO_DRAFT, DraftRequest, DraftTree, HiddenRows, Proposer
from engine.decoding.speculation.control.controller import Controller, Round
from engine.decoding.speculation.verify.verifier import Verdict
from engine.decoding.telemetry.records import DraftRecord


class FakeRequest:
    """What a controller reads of a request."""

    def __init__(self, number: int, **options: object) -> None:
        self.owner = (f"r{number}", 0)
        self.options = RequestOptions(**options)  # type: ignore[arg-type]
        self.drafting = None
        self.tokens = [1]
        self.num_computed, self.pending = 0, 1
        self.chat, self.answer = "", 0
        self.most_depth = 1 << 30
        self.constraint = None


class FakeProposer(Proposer):
    """``holds(depth)`` is the chance that one of ``width`` drafts at a depth holds if the one above did.

    ``per_pass`` seconds for each depth, or for all of them in one pass.
    """

    def __init__(
        self,
        name: str,
        hold: float,
        per_pass: float,
        branches: bool = False,
        one_pass: bool = False,
        needs_hidden: frozenset[int] = frozenset(),
    ) -> None:
        self.name, self.hold, self.per_pass = name, hold, per_pass
        self.branches, self.one_pass, self.needs_hidden = branches, one_pass, needs_hidden
        self.speechless = False
        self.asked: list[DraftRequest] = []
        self.saw: list[object] = []

    def propose(self, asks: Sequence[DraftRequest]) -> list[DraftTree]:
        self.asked += asks
        drafting = [ask for ask in asks if ask.budget]
        if self.speechless or not drafting:
            return [NO_DRAFT] * len(asks)
        passes = 1 if self.one_pass else max(min(ask.depth, ask.budget) for ask in drafting)
        self._count(passes * self.per_pass, passes=passes)
        return [self._tree(ask) if ask.budget else NO_DRAFT for ask in asks]

    def chance(self, tree: DraftTree, depth: int) -> float:
        """That a draft at ``depth`` holds: each alternative there may."""
        if tree.parents is None:
            return self.hold
        width = sum(1 for node in range(len(tree.tokens)) if len(tree.path(node)) == depth)
        return 1.0 - (1.0 - self.hold) ** width

    def _tree(self, ask: DraftRequest) -> DraftTree:
        depth = min(ask.depth, ask.budget)
        if ask.budget <= depth or not self.branches:
            return DraftTree((0,) * depth, proposer=self.name)
        parents: list[int] = []
        above = [-1]
        # As many alternatives at each depth as the budget has room for, all under the first of the depth above.
        for level in range(depth):
            width = ask.budget // depth + (level < ask.budget % depth)
            start = len(parents)
            parents += [above[0]] * width
            above = list(range(start, start + width))
        return DraftTree((0,) * len(parents), tuple(parents), proposer=self.name)

    def see(self, seen: Sequence[HiddenRows]) -> None:
        self.saw += seen


class FakeRepeats(FakeProposer):
    """Drafts only where ``repeating`` says so."""

    def __init__(self, hold: float, repeating: Callable[[], bool] = lambda: True) -> None:
        super().__init__("ngram", hold, 0.0)
        self.repeating = repeating

    def has_match(self, request: object) -> bool:
        return self.repeating()


class Simulation:
    """Steps of ``batch`` requests. ``target(rows)`` are the seconds of the target's pass; ``host`` are added to a step
    in which somebody drafts. One step in ``1 / hiccups`` takes three times as long, step n ``slow(n)`` times."""

    def __init__(
        self,
        proposers: Sequence[FakeProposer],
        target: Callable[[int], float],
        batch: int = 1,
        host: float = 0.0,
        hiccups: float = 0.0,
        seed: int = 0,
        slow: Callable[[int], float] = lambda step: 1.0,
        **options: object,
    ) -> None:
        self.slow = slow
        self.proposers = {proposer.name: proposer for proposer in proposers}
        self.now = 0.0
        self.controller = Controller(proposers, lambda: self.now)
        self.target, self.host, self.hiccups = target, host, hiccups
        self.options: dict[str, object] = {"speculation": "auto", **options}
        self.requests = [FakeRequest(number, **self.options) for number in range(batch)]
        self.rng = random.Random(seed)
        self.seconds = 0.0
        self.tokens = 0
        self.steps: list[tuple[DraftRecord, ...]] = []

    @property
    def plain_seconds(self) -> float:
        """What the same tokens would have taken without drafts (and without hiccups)."""
        batch = len(self.requests)
        return self.tokens / batch * self.target(batch)

    def renew(self) -> None:
        """Other requests, one for each of the present ones."""
        for request in self.requests:
            self.controller.release(request)  # type: ignore[arg-type]
        self.requests = [FakeRequest(len(self.steps) + number, **self.options) for number in range(len(self.requests))]

    def step(self) -> tuple[DraftRecord, ...]:
        controller = self.controller
        wanted = controller.plan(self.requests)  # type: ignore[arg-type]
        slices = [Slice(request, 1, True, wanted.get(request.owner, 0)) for request in self.requests]  # type: ignore[type-var]
        trees, work, _ = controller.propose(slices)  # type: ignore[arg-type]
        rows = len(slices) + sum(len(tree.tokens) for tree in trees)
        slow = self.slow(len(self.steps)) * (3.0 if self.rng.random() < self.hiccups else 1.0)
        rounds = []
        for request, tree in zip(self.requests, trees, strict=True):
            nodes = self._kept(tree)
            if tree.tokens:
                rounds.append(Round(request, tree, Verdict(nodes, 0, "target")))  # type: ignore[arg-type]
            self.tokens += 1 + len(nodes)
        seconds = (self.target(rows) + work.seconds) * slow + (self.host if rows > len(slices) else 0.0)
        self.now += seconds
        records = controller.record(rounds, [], decoding_only=True)
        self.seconds += seconds
        self.steps.append(records)
        return self.steps[-1]

    def run(self, steps: int) -> Simulation:
        for _ in range(steps):
            self.step()
        return self

    def asked(self, name: str, last: int) -> float:
        """The share of the last steps in which this proposer was asked."""
        recent = self.steps[-last:]
        return sum(any(r.proposer == name and r.draft_length for r in records) for records in recent) / len(recent)

    def latest(self, name: str) -> DraftRecord:
        return next(r for records in reversed(self.steps) for r in records if r.proposer == name)

    def _kept(self, tree: DraftTree) -> tuple[int, ...]:
        """A path down the tree, as far as chance lets it: always the first node at each depth, which has children."""
        if not tree.tokens:
            return ()
        proposer = self.proposers[tree.proposer]
        nodes: list[int] = []
        here = -1
        while True:
            parents = tree.parents or tuple(range(-1, len(tree.tokens) - 1))
            child = next((node for node, parent in enumerate(parents) if parent == here), None)
            if child is None or self.rng.random() >= proposer.chance(tree, len(nodes) + 1):
                return tuple(nodes)
            nodes.append(child)
            here = child
