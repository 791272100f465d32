"""Service classes: each with targets for its first token and for the time between tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.catalogue import Choice
from engine.decoding.scheduling.costs import StepCosts
from engine.decoding.scheduling.policy import S, SchedulingPolicy, SchedulingTechnique, Tier, passed
from engine.decoding.scheduling.service import CLASSES, INTERACTIVE, TARGETS


class ServiceClasses(SchedulingPolicy):
    """Rows are shared among the classes by weight (stride scheduling, Waldspurger & Weihl 1995); within a class the
    earliest deadline goes first, which is the oldest, since all have the same target.

    A class that comes back begins where the least served of the others is, or where it was if that is further on: it
    has no claim on the time it was away, and a client that comes in another class each time gains nothing.
    Bound: a class with work has its weight's share of the rows, however many requests the others have.
    A waiting sequence takes pages of a running one of a lower class until its deadline has passed.
    No step in which no interactive sequence is read is longer than that class's target between tokens, so that the
    next one waits no longer for the end of a step.
    """

    patient = True

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, float] = {}
        self._least = 0.0
        """What the least served of those with work has passed."""
        self._present: set[str] = set()
        self._late: set[int] = set()
        self._asks = False

    def begin(self, running: Sequence[S], waiting: Sequence[S], now: float) -> None:
        everybody = [*running, *waiting]
        present = {sequence.standing.service for sequence in everybody}
        self._least = min((self._passed[name] for name in present & self._present), default=self._least)
        self._passed |= {name: max(self._passed.get(name, 0.0), self._least) for name in present}
        self._present = present
        self._asks = any(each.cache.pending > 1 and each.standing.service == INTERACTIVE.name for each in everybody)
        self._late = {
            each.arrival for each in everybody if passed(self.service(each).first_token, each.standing.arrived_at, now)
        }

    def lane(self, sequence: S) -> int:
        return [*CLASSES].index(sequence.standing.service)

    def tier(self, sequence: S) -> Tier:
        return self._passed[sequence.standing.service], -self.service(sequence).weight

    def level(self, sequence: S) -> int:
        return 0 if sequence.arrival in self._late else self.lane(sequence)

    def budget(self, decodes: Sequence[S], most: int, costs: StepCosts) -> int:
        if not self._asks:
            most = self.classes[INTERACTIVE.name].within(0, most, costs)
        if not decodes:
            return most
        target = self.tightest(decodes)
        held = sum(self.service(sequence).between_tokens == target.between_tokens for sequence in decodes)
        return target.within(held, most, costs)

    def on_progress(self, sequence: S, rows: int, seconds: float, now: float) -> None:
        service = self.service(sequence)
        self._passed[service.name] = self._passed.get(service.name, self._least) + rows / service.weight

    def calm(self, running: Sequence[S], waiting: Sequence[S], now: float) -> float:
        return 0.0 if waiting else math.inf


SERVICE_CLASSES = SchedulingTechnique(
    choice=Choice(
        "classes",
        "service classes",
        explains="Interactive requests go before standard ones, and these before batch ones, each with its share, so "
        "that none starves.",
        also=("priority", "SLO", "earliest deadline first", "goodput"),
    ),
    paper="Waldspurger & Weihl 1995, Stride Scheduling (https://citeseerx.ist.psu.edu/viewdoc/summary?doi=10.1.1.188.2062)",
    options=TARGETS,
    policy=ServiceClasses,
)
