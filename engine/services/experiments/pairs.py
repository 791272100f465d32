"""Runs of several sides in pairs whose order is random (engine/decoding/telemetry/pairs.py), until a verdict is known.

A figure that is counted has no noise and needs one pair.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import psutil

from engine.decoding.telemetry.pairs import LEAST, MOST, estimate, settled
from engine.decoding.telemetry.processor import OtherPrograms
from engine.protocol import Effect, Metric
from engine.protocol.compared import is_busy, wide
from engine.protocol.lab import LabFigure, LabPicture, LabProgress, Picture
from engine.services.experiments.experiment import Lab, RunEvent

Side = Mapping[str, float]
"""Figures of one run of one side, by :attr:`Measured.key`; a side may lack some, but not the first one."""
PATIENCE, LONGER = 2.0, 6.0
"""Budgets after which no further round begins, whatever is known by then; and those while other programs keep the
processor busy."""
LONGER_BUSY = "running longer because this computer is busy"
LONGER_WIDE = "running longer because the times differ widely"
PARTS = 1000
"""Of which progress counts those that are done."""


class Measured(NamedTuple):
    """A figure that runs give, under ``key``."""

    key: str
    metric: Metric


def turns(sides: int, rounds: int, draw: random.Random) -> Iterator[tuple[int, int]]:
    """Yield each round's number with the place of each side in turn, in an order drawn by lot: a drift of the machine's
    speed favours none."""
    order = list(range(sides))
    for number in range(rounds):
        draw.shuffle(order)
        yield from ((number, place) for place in order)


class Pairs:
    """Runs of several sides, side by side until each differs clearly from the first one or does not."""

    def __init__(self, lab: Lab, name: str, measured: Sequence[Measured], decides: Measured | None = None) -> None:
        """``decides``: the figure that is waited for; the first one if left out."""
        self._lab, self._name, self._measured = lab, name, measured
        self._decides = measured.index(decides) if decides is not None else 0
        self.runs: list[list[Side]] = []
        """Of each side; filled by :meth:`run`, or by an experiment that times nothing."""
        self.others: float | None = None
        """The share of the processor that other programs took during the runs; None where nothing was timed."""

    def run(
        self, sides: Sequence[Callable[[], Side]], picture: Callable[[int], Picture] | None = None
    ) -> Iterator[RunEvent]:
        """Warm each side up once, then run all of them in rounds, their order drawn by lot. After each run comes the
        ``picture`` of its side, by the side's place.

        It ends when the deciding figure is settled for every side, at :attr:`Lab.pairs`, or where the budget ends.
        """
        order, rng = list(range(len(sides))), self._lab.random
        self.runs = [[] for _ in sides]
        counted = all(each.metric.counted for each in self._measured)
        most = 1 if counted else self._lab.pairs or MOST
        began = time.monotonic()
        for side in order:
            yield LabProgress(name=self._name, done=0, total=PARTS, side=side, sentence="warming up")
            if not counted:
                sides[side]()
                yield from self._shown(side, picture)
        programs, measuring, share, longer = OtherPrograms(psutil.Process().parent()), time.monotonic(), 0.0, ""
        for turn in range(most):
            rng.shuffle(order)
            for place, side in enumerate(order):
                runs = turn * len(sides) + place
                share = max(share, self._share(runs / len(sides), most, time.monotonic() - measuring))
                done = int(PARTS * share)
                yield LabProgress(name=self._name, done=done, total=PARTS, run=runs + 1, side=side, sentence=longer)
                self.runs[side].append(sides[side]())
                yield from self._shown(side, picture)
            self.others = None if counted else programs.share()
            if self._enough(turn + 1, most, began, measuring):
                break
            longer = self._longer(turn + 1, measuring)
        yield LabProgress(name=self._name, done=PARTS, total=PARTS)

    def _share(self, rounds: float, most: int, seconds: float) -> float:
        """Progress, 0 to 0.99, by time: as if it took the budget, or longer where too few rounds are done by then."""
        if not rounds:
            return 0.0
        each = seconds / rounds
        return min(0.99, seconds / max(min(LEAST, most) * each, min(self._lab.budget, most * each), 1e-9))

    def _enough(self, rounds: int, most: int, began: float, measuring: float) -> bool:
        """Return True if no further round begins, by what is known after ``rounds`` rounds."""
        now, effects = time.monotonic(), self._effects(self._decides)
        if rounds >= min(LEAST, most):
            told = now > measuring + self._lab.budget and not any(map(wide, effects))
            if told or all(map(settled, effects)):
                return True
        return now > began + (LONGER if is_busy(self.others) else PATIENCE) * self._lab.budget

    def _longer(self, rounds: int, measuring: float) -> str:
        """Reason a further round begins although the budget is spent; else empty."""
        if time.monotonic() <= measuring + self._lab.budget:
            return ""
        return LONGER_BUSY if is_busy(self.others) else LONGER_WIDE if rounds >= LEAST else ""

    def _shown(self, side: int, picture: Callable[[int], Picture] | None) -> Iterator[LabPicture]:
        if picture is not None:
            yield LabPicture(name=self._name, side=side, picture=picture(side))

    def figures(self) -> list[LabFigure]:
        """List the figures found, in the order of what is measured."""
        return [
            LabFigure(effects=self._effects(place), runs=self._values(each.key))
            for place, each in enumerate(self._measured)
        ]

    def _effects(self, place: int) -> list[Effect]:
        key, metric = self._measured[place]
        first, *others = self._values(key)
        return [estimate(first, other, metric) if other else _nothing(first, metric) for other in others]

    def _values(self, key: str) -> list[list[float]]:
        """The runs of each side; none of one that did not give the figure each time."""
        return [[run[key] for run in side] if all(key in run for run in side) else [] for side in self.runs]


def _nothing(first: Sequence[float], metric: Metric) -> Effect:
    """The effect of a side that does not give the figure; the first one does."""
    before = statistics.median(first)
    return Effect(metric=metric, before=before, after=0.0, ratio=None, low=0.0, high=0.0, pairs=0, verdict="none")


def once(metric: Metric, values: Sequence[float]) -> LabFigure:
    """A figure that is taken once for each side: of one that has noise that is too few for a verdict."""
    first, *others = values
    return LabFigure(
        effects=[estimate([first], [other], metric) for other in others], runs=[[value] for value in values]
    )
