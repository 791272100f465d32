"""FastServe's skip-join multi-level feedback queue: short answers first, without knowing which will be short."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.catalogue import Choice
from engine.decoding.scheduling.costs import StepCosts
from engine.decoding.scheduling.policy import S, SchedulingPolicy, SchedulingTechnique, Tier, passed

QUANTUM = 0.5
"""Seconds of the first queue's quantum; each next one's is twice as long."""
LEVELS = 8
STARVED = 20.0
"""Seconds without service after which a sequence goes to the first queue."""


class SkipJoinMLFQ(SchedulingPolicy):
    """A sequence joins the first queue whose quantum its prompt takes no longer than, and goes down one when it has had
    its queue's quantum; who is not served for some seconds goes to the first (Wu et al. 2023, arXiv 2305.05920).

    Keys and values of who gives way stay, while there are pages.
    Bound: nobody is left out for longer than :data:`STARVED` and the first quanta of those who were before him.
    """

    def enter(self, sequence: S, costs: StepCosts) -> None:
        standing = sequence.standing
        if standing.level < 0:
            prompt = len(sequence.cache.tokens) - sequence.cache.found()
            standing.level = entry_level(costs.seconds(prompt) or 0.0)
            standing.served_at = standing.arrived_at

    def begin(self, running: Sequence[S], waiting: Sequence[S], now: float) -> None:
        for sequence in (*running, *waiting):
            standing = sequence.standing
            if standing.level and passed(STARVED, standing.served_at, now):
                standing.level, standing.attained, standing.served_at = 0, 0.0, now

    def lane(self, sequence: S) -> int:
        return sequence.standing.level

    def tier(self, sequence: S) -> Tier:
        return (sequence.standing.level,)

    level = lane

    def on_progress(self, sequence: S, rows: int, seconds: float, now: float) -> None:
        standing = sequence.standing
        standing.attained += seconds
        standing.served_at = now
        if standing.attained >= quantum(standing.level) and standing.level < LEVELS - 1:
            standing.level, standing.attained = standing.level + 1, 0.0

    def calm(self, running: Sequence[S], waiting: Sequence[S], now: float) -> float:
        if not waiting:
            return math.inf
        served = min(quantum(each.standing.level) - each.standing.attained for each in running)
        return min(served, *(STARVED - (now - each.standing.served_at) for each in waiting))


def quantum(level: int) -> float:
    """Seconds of service in a queue."""
    return QUANTUM * float(2**level)


def entry_level(seconds: float) -> int:
    """The first queue in whose quantum a prompt of ``seconds`` is read."""
    return next((level for level in range(LEVELS) if seconds <= quantum(level)), LEVELS - 1)


MLFQ = SchedulingTechnique(
    choice=Choice(
        "mlfq",
        "skip-join MLFQ",
        explains="Answers that have been served little go first, those that go on for long give way to them and come "
        "back. Nobody need say which will be short.",
        also=("multi-level feedback queue", "FastServe", "preemptive scheduling"),
    ),
    paper="Wu et al. 2023, FastServe (arXiv 2305.05920)",
    policy=SkipJoinMLFQ,
)
