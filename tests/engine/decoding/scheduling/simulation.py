"""Scheduling on simulated time: a step takes a millisecond for every row and five for itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.cache.manager import KVCacheManager
from engine.cache.pool import PagePool, pages_for
from engine.cache.sequences import SequenceCache
from engine.cache.text import NewSequence
from engine.decoding.scheduling.policy import Policy, Standing
from engine.decoding.scheduling.scheduler import Limits, Plan, Scheduler


@dataclass(eq=False)
class Job:
    """A sequence that ends after ``answer`` tokens."""

    arrival: int
    prompt: int
    answer: int
    cached: bool = True
    last_step: int = -1
    preemptions: int = 0
    standing: Standing = field(default_factory=Standing)
    at: float = 0.0
    first: float | None = None
    gaps: list[float] = field(default_factory=list)
    last_token: float = 0.0
    wholes: list[tuple[int, int]] = field(default_factory=list)
    """Tokens that see each other, as those of pictures may."""
    cache: SequenceCache = field(init=False)

    @property
    def owner(self) -> tuple[str, int]:
        return str(self.arrival), 0

    @property
    def known(self) -> int:
        return len(self.cache.tokens)

    @property
    def num_computed(self) -> int:
        return self.cache.num_computed

    @property
    def pages(self) -> list[int]:
        return self.cache.pages

    @property
    def reach(self) -> int:
        return self.prompt + self.answer

    @property
    def max_draft_tokens(self) -> int:
        return max(0, self.reach - self.known - 1)


class Simulation:
    """Steps a scheduler without any model; ``accept`` says how many of a step's drafts hold."""

    def __init__(
        self,
        pages: int,
        limits: Limits,
        draft_tokens: int = 0,
        accept: int = 0,
        policy: Callable[[], Policy] = Policy,
    ) -> None:
        self.pool = PagePool(pages)
        self.manager = KVCacheManager(self.pool)
        self.scheduler: Scheduler[Job] = Scheduler(self.manager, policy())
        self.limits, self.draft_tokens, self.accept = limits, draft_tokens, accept
        self.now = 0.0
        self.plans: list[Plan[Job]] = []
        self.done: list[Job] = []
        self.known: list[Job] = []
        self.failed: list[Job] = []

    def step(self) -> Plan[Job]:
        wanted = {job.owner: self.draft_tokens for job in self.scheduler.running}
        decoding = any(job.cache.pending == 1 for job in self.scheduler.running)
        plan = self.scheduler.plan(self.limits, wanted, self.now / 1e3)
        self.pool.check()
        self._obeys(plan, decoding)
        self.plans.append(plan)
        for job in plan.failed:
            self.scheduler.remove(job)
            self.failed.append(job)
        rows = sum(piece.rows + piece.drafts for piece in plan.slices)
        self.now += 5.0 + rows
        self.scheduler.progress(plan.slices, rows, (5.0 + rows) / 1e3, self.now / 1e3)
        for piece in plan.slices:
            self._advance(piece.sequence, piece.rows, piece.last, piece.drafts)
        self.pool.check()
        return plan

    def _obeys(self, plan: Plan[Job], decoding: bool) -> None:
        rows = sum(piece.rows + piece.drafts for piece in plan.slices)
        alone = len(plan.slices) == 1 and not self.limits.chunked
        longest = max((stop - first for job in self.known for first, stop in job.cache.wholes), default=0)
        others = sum(1 + piece.drafts for piece in plan.slices if piece.rows == 1)
        assert rows <= max(self.limits.token_budget if decoding else self.limits.most, longest + others) or alone
        assert len({piece.sequence.owner for piece in plan.slices}) == len(plan.slices)
        for piece in plan.slices:
            job = piece.sequence
            assert len(job.pages) >= pages_for(job.num_computed + piece.rows + piece.drafts)
            assert job not in plan.preempted
            assert 0 < piece.rows <= job.cache.pending
            end = job.num_computed + piece.rows
            assert not any(first < end < stop for first, stop in job.cache.wholes)
            assert piece.drafts == 0 or (piece.last and job.known + piece.drafts < job.reach)
        for job in self.scheduler.waiting:
            assert not job.pages
            assert job.num_computed == 0

    def _advance(self, job: Job, rows: int, last: bool, drafts: int) -> None:
        job.cache.advance(rows)
        if not last:
            return
        held = min(drafts, self.accept)
        job.cache.advance(held)
        job.cache.tokens.extend([0] * (held + 1))
        if job.first is None:
            job.first = self.now
        else:
            job.gaps.append(self.now - job.last_token)
        job.last_token = self.now
        if job.known >= job.reach:
            self.scheduler.remove(job)
            self.done.append(job)
        else:
            self.scheduler.settle(job, self.limits)

    def add(self, job: Job) -> Job:
        job.at, job.standing.arrived_at = self.now, self.now / 1e3
        job.cache = SequenceCache(self.manager, NewSequence(job.owner, [0] * job.prompt, wholes=job.wholes))
        self.known.append(job)
        self.scheduler.add(job)
        return job

    def drain(self) -> None:
        for _ in range(100_000):
            if not (self.scheduler.running or self.scheduler.waiting):
                break
            self.step()
        else:
            raise AssertionError("never done")
        assert self.pool.used_count == 0
