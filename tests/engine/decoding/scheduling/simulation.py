"""The engine's simulator by single steps, with draft tokens, and every plan held to what a plan promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.cache.pool import pages_for
from engine.decoding.scheduling.costs import StepCosts
from engine.decoding.scheduling.plan import Limits, Plan, Slice
from engine.decoding.scheduling.policy import MOST_PREEMPTED, SchedulingPolicy
from engine.decoding.simulate.simulator import SimulatedRequest, Simulator
from engine.decoding.simulate.trace import TraceRequest

STEP, ROW = 0.005, 0.001
"""Seconds of a step for itself and for each of its rows."""


class Simulation(Simulator):
    """Of a step's drafts ``accept`` hold, ``draft_tokens`` of a request at most."""

    def __init__(
        self,
        pages: int,
        limits: Limits,
        draft_tokens: int = 0,
        accept: int = 0,
        policy: Callable[[], SchedulingPolicy] = SchedulingPolicy,
    ) -> None:
        super().__init__(policy(), limits, StepCosts((1, STEP + ROW), (256, STEP + 256 * ROW)), pages)
        self.pool = self.manager.pool
        self.draft_tokens, self.accept = draft_tokens, accept
        self.plans: list[Plan[SimulatedRequest]] = []
        self.done: list[SimulatedRequest] = []
        self.longest = 0
        """Tokens of the longest picture."""

    def add(
        self,
        arrival: int,
        prompt: int,
        answer: int,
        service: str = "standard",
        *,
        cached: bool = True,
        wholes: Sequence[tuple[int, int]] = (),
    ) -> SimulatedRequest:
        """A request comes. ``wholes`` are tokens that see each other, as those of pictures may."""
        request = SimulatedRequest(arrival, TraceRequest(self.now, prompt, answer, service), self.manager)
        request.cached, request.cache.wholes = cached, wholes
        self.longest = max(self.longest, *(stop - first for first, stop in wholes), 0)
        self.scheduler.add(request)
        return request

    def step(self) -> Plan[SimulatedRequest]:
        wanted = {request.cache.owner: self.draft_tokens for request in self.scheduler.running}
        decodes = {request for request in self.scheduler.running if request.cache.pending == 1}
        plan = self.scheduler.plan(self.limits, wanted, self.now)
        self.pool.check()
        self._obeys(plan, any(piece.sequence in decodes for piece in plan.slices))
        self.plans.append(plan)
        for request in plan.failed:
            self.scheduler.remove(request)
            self.failed += 1
            assert pages_for(len(request.cache.tokens) + 1) > self.pool.total
        rows = sum(piece.rows + piece.drafts for piece in plan.slices)
        seconds = STEP + rows * ROW
        self.now += seconds
        self.scheduler.progress(plan.slices, rows, seconds, self.now)
        for piece in plan.slices:
            self._advance(piece)
        self.pool.check()
        return plan

    def _obeys(self, plan: Plan[SimulatedRequest], decoding: bool) -> None:
        rows = sum(piece.rows + piece.drafts for piece in plan.slices)
        alone = len(plan.slices) == 1 and not self.limits.chunked
        others = sum(1 + piece.drafts for piece in plan.slices if piece.rows == 1)
        assert rows <= max(self.limits.token_budget if decoding else self.limits.most, self.longest + others) or alone
        assert len({piece.sequence.arrival for piece in plan.slices}) == len(plan.slices)
        for sequence, more, last, drafts in plan.slices:
            cache = sequence.cache
            assert len(cache.pages) >= pages_for(cache.num_computed + more + drafts)
            assert sequence not in plan.preempted
            assert 0 < more <= cache.pending
            assert not any(first < cache.num_computed + more < stop for first, stop in cache.wholes)
            assert drafts == 0 or (last and drafts < sequence.left)
        for request in self.scheduler.waiting:
            assert not request.cache.pages
            assert request.cache.num_computed == 0
        self._serves(plan)

    def _serves(self, plan: Plan[SimulatedRequest]) -> None:
        """Nobody is left out for whom there are rows, a place and pages, nor for one of a later tier."""
        scheduler, limits = self.scheduler, self.limits
        policy, running, admitted = scheduler.policy, scheduler.running, plan.admitted
        assert plan.slices or plan.failed or not (running or scheduler.waiting), "an idle step"
        for victim in plan.preempted:
            level = policy.level(victim) if victim.standing.preemptions <= MOST_PREEMPTED else 0
            holders = [other for other in running if other.cache.pages and other not in admitted]
            assert level >= max(map(policy.page_level, holders), default=0)
        if limits.targets or not limits.chunked or (plan.reads and policy.patient):
            return
        served = {piece.sequence for piece in plan.slices}
        idle = [other for other in running if other not in served and other.cache.pending == 1 and other.cache.fits(1)]
        latest = max((policy.tier(each) for each in served if each.cache.pending == 1), default=())
        assert all(policy.tier(other) >= latest for other in idle)
        if len(served) < limits.max_batch and plan.rows < limits.token_budget:
            assert not idle
            heads = scheduler.waiting.heads() if policy.admits(running) and not (admitted or plan.preempted) else []
            for first in policy.order(heads, lambda request: request.cache.found())[:1]:
                assert self.longest or not scheduler._fits(first, limits), "who waits would have room"

    def _advance(self, piece: Slice[SimulatedRequest]) -> None:
        request, cache = piece.sequence, piece.sequence.cache
        cache.advance(piece.rows)
        if not piece.last:
            self.scheduler.read(request)
            return
        held = min(piece.drafts, self.accept)
        cache.advance(held)
        cache.tokens.extend([0] * (held + 1))
        self._told(request, self.now)
        request.last = self.now
        if request.left <= 0:
            self.scheduler.remove(request)
            self.done.append(request)
        else:
            self.scheduler.settle(request, self.limits)

    def drain(self) -> None:
        for _ in range(100_000):
            if not (self.scheduler.running or self.scheduler.waiting):
                break
            self.step()
        else:
            raise AssertionError("never done")
        assert self.pool.used_count == 0
