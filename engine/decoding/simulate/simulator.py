"""A discrete-event simulation of scheduling: the engine's own scheduler, policies and page ledger on virtual time.

Steps compute nothing; they take the seconds that steps of as many rows were measured to take. Steps that are alike are
counted at once, so that a trace of hours is simulated in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from engine.cache.manager import KVCacheManager
from engine.cache.pool import PagePool, pages_for
from engine.cache.sequences import SequenceCache
from engine.cache.text import NewSequence
from engine.decoding.scheduling.costs import StepCosts
from engine.decoding.scheduling.plan import Limits, Plan
from engine.decoding.scheduling.policy import QueueStanding, SchedulingPolicy
from engine.decoding.scheduling.scheduler import Scheduler
from engine.decoding.simulate.trace import TraceRequest


class SimulatedRequest:
    """A request of a trace in the simulation, a :class:`engine.decoding.scheduling.policy.Schedulable`."""

    __slots__ = (
        "arrival", "cache", "cached", "first", "last", "last_step", "preemptions", "reach", "spec", "standing", "worst",
    )  # fmt: skip

    def __init__(self, arrival: int, spec: TraceRequest, manager: KVCacheManager) -> None:
        self.arrival, self.spec = arrival, spec
        self.standing = QueueStanding(spec.at, spec.service)
        self.cached, self.reach = True, spec.prompt + spec.answer
        self.cache = SequenceCache(manager, NewSequence((str(arrival), 0), [0] * spec.prompt))
        self.first = self.last = self.worst = 0.0

    @property
    def left(self) -> int:
        """Tokens that it has still to write."""
        return self.reach - len(self.cache.tokens)

    @property
    def max_draft_tokens(self) -> int:
        return max(0, self.left - 1)


class Done(NamedTuple):
    """A request that ended. Times are seconds from its arrival; ``worst`` is the longest between two tokens."""

    spec: TraceRequest
    first_token: float
    completion: float
    worst: float
    preemptions: int


class Simulator:
    """Serves a trace with a policy, by the ``costs`` of steps, of which two sizes at the least are known."""

    def __init__(self, policy: SchedulingPolicy, limits: Limits, costs: StepCosts, pages: int) -> None:
        self.manager = KVCacheManager(PagePool(pages))
        self.scheduler: Scheduler[SimulatedRequest] = Scheduler(self.manager, policy)
        self.scheduler.costs = costs
        self.limits = limits
        self.now, self.steps, self.failed, self.busy = 0.0, 0, 0, 0.0
        self.most_waiting = 0

    def run(self, trace: Iterable[TraceRequest]) -> Iterator[Done]:
        """Yield requests as they end. Those that can never have the pages they need are counted in ``failed``."""
        scheduler, coming = self.scheduler, enumerate(trace)
        upcoming = next(coming, None)
        while upcoming is not None or scheduler.running or scheduler.waiting:
            if upcoming is not None and not (scheduler.running or scheduler.waiting):
                self.now = max(self.now, upcoming[1].at)
            while upcoming is not None and upcoming[1].at <= self.now:
                scheduler.add(SimulatedRequest(*upcoming, self.manager))
                upcoming = next(coming, None)
            self.most_waiting = max(self.most_waiting, len(scheduler.waiting))
            yield from self._step(upcoming[1].at if upcoming is not None else math.inf)

    def _step(self, until: float) -> Iterator[Done]:
        plan = self.scheduler.plan(self.limits, {}, self.now)
        for job in plan.failed:
            self.scheduler.remove(job)
            self.failed += 1
        if not plan.slices:
            return
        policy, rows = self.scheduler.policy, sum(piece.rows for piece in plan.slices)
        seconds = self.scheduler.costs.seconds(rows)
        assert seconds, "costs of steps of two sizes are known"
        times = self._alike(plan, seconds, until)
        self.steps += times
        self.busy += times * seconds
        begun, self.now = self.now, self.now + times * seconds
        for piece in plan.slices:
            job, cache = piece.sequence, piece.sequence.cache
            policy.on_progress(job, times * piece.rows, times * seconds, self.now)
            # Nothing is shared, drafted or out of a window here, so that no page is to be settled after a step.
            if times > 1:
                cache.allocate(times)
            cache.advance(piece.rows + times - 1)
            if not piece.last:
                continue
            cache.tokens.extend([0] * times)
            self._told(job, begun + seconds)
            if len(cache.tokens) >= job.reach:
                self.scheduler.remove(job)
                at = job.spec.at
                yield Done(job.spec, job.first - at, self.now - at, job.worst, job.standing.preemptions)

    def _told(self, job: SimulatedRequest, at: float) -> None:
        """Its next token came, and others until now."""
        if not job.first:
            job.first = at
        elif at - job.last > job.worst:
            job.worst = at - job.last
        job.last = self.now

    def _alike(self, plan: Plan[SimulatedRequest], seconds: float, until: float) -> int:
        """How many steps like this one follow each other, this one included: until a request comes or ends, pages run
        out, or the policy decides otherwise."""
        if plan.admitted or plan.preempted or plan.failed or not all(p.rows == 1 and p.last for p in plan.slices):
            return 1
        jobs = [piece.sequence for piece in plan.slices]
        if len(jobs) < len(self.scheduler.running):
            return 1
        times = min(job.left for job in jobs)
        calm = min(
            until - self.now,
            self.scheduler.policy.calm(self.scheduler.running, self.scheduler.waiting.heads(), self.now),
        )
        if calm < math.inf:
            times = min(times, max(1, math.ceil(calm / seconds)))
        room = self.manager.room
        while times > 1 and sum(pages_for(len(j.cache.tokens) + times) - len(j.cache.pages) for j in jobs) > room:
            times //= 2
        return max(1, times)
