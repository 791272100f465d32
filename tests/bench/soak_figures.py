"""Figures of a soak test, and whether its memory and descriptors stay flat."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from engine.services.experiments.reports.tables import MB, show_line, show_table

WARM_UP = 1 / 3
"""Share of a soak in which caches, heaps and arenas may fill."""
SURE = 2.0
"""A slope counts as above zero from this many standard errors."""
GROWTH = 0.02
"""Share of the memory by which it may have grown over the whole soak, sure or not."""
MORE_DESCRIPTORS = 2
_ROWS = 12


class SoakSample(msgspec.Struct, frozen=True):
    """``rss`` in bytes; ``in_use`` and ``cached`` in pages, ``running`` and ``queued`` in answers.

    ``fresh``: the model was just loaded again, so that its cache is empty. Only those tell whether memory grows:
    between them it rises as pages are first written.
    """

    seconds: float
    rss: int
    descriptors: int
    in_use: int
    cached: int
    running: int
    queued: int
    fresh: bool = False


class Slope(NamedTuple):
    """Bytes a second, and the standard error of that."""

    value: float
    error: float


class SoakFigures(msgspec.Struct, frozen=True):
    """``counts`` says what was done and how answers ended; ``wrong`` are sentences, none of which should be there."""

    model: str
    seconds: float
    samples: list[SoakSample]
    counts: dict[str, int]
    wrong: list[str]

    @property
    def warm(self) -> list[SoakSample]:
        """The samples after the warm-up."""
        return [sample for sample in self.samples if sample.seconds >= WARM_UP * self.seconds]

    @property
    def slope(self) -> Slope:
        """The slope of resident memory with an empty cache, after the warm-up."""
        fresh = [sample for sample in self.warm if sample.fresh]
        return slope([sample.seconds for sample in fresh], [sample.rss for sample in fresh])

    @property
    def grows(self) -> str:
        """Sentence on what grew, resident memory or descriptors; "" if nothing did."""
        found, warm = self.slope, self.warm
        growth = found.value * self.seconds
        if found.value > SURE * found.error and growth > GROWTH * warm[0].rss:
            return f"Memory grows: {growth / MB:.0f} MB in {self.seconds:.0f} seconds."
        if warm[-1].descriptors > warm[0].descriptors + MORE_DESCRIPTORS:
            return f"Descriptors grow: from {warm[0].descriptors} to {warm[-1].descriptors}."
        return ""

    @property
    def lost(self) -> int:
        """Answers asked for that neither ended nor were refused."""
        ended = sum(self.counts.get(reason, 0) for reason in ENDS)
        return self.counts.get("asked", 0) - ended

    @property
    def passed(self) -> bool:
        return not (self.grows or self.lost or self.wrong)

    def show(self) -> None:
        step = max(1, len(self.samples) // _ROWS)
        show_table(
            f"{self.model}: random use for {self.seconds:.0f} s",
            "second | memory, MB | descriptors | pages in use | pages cached | running | queued",
            (
                f"{sample.seconds:.0f} | {sample.rss / MB:.0f} | {sample.descriptors:,} | {sample.in_use:,} | "
                f"{sample.cached:,} | {sample.running:,} | {sample.queued:,}"
                for sample in [*self.samples[:-1:step], self.samples[-1]]
            ),
        )
        done = ", ".join(f"{count:,} {name}" for name, count in self.counts.items() if name not in (*ENDS, "asked"))
        ends = ", ".join(f"{self.counts[name]:,} {name}" for name in ENDS if self.counts.get(name))
        show_line(f"Done: {done}.")
        show_line(f"Of {self.counts.get('asked', 0):,} answers: {ends}; {self.lost} lost.")
        found = self.slope
        told = f"{60 * found.value / MB:+.2f} ± {60 * found.error / MB:.2f} MB a minute. {self.grows or 'Flat.'}"
        if not np.isfinite(found.error):
            told = self.grows or "too few loads to tell whether it grows. Let it run for longer."
        show_line(f"Memory with an empty cache, after the first third: {told}")
        for sentence in self.wrong:
            show_line(f"wrong: {sentence}")


ENDS = ("stop", "length", "context", "cancelled", "memory", "error", "refused")


def slope(x: list[float], y: list[float]) -> Slope:
    """Least squares; the error is infinite where there are under three."""
    if len(x) < 3:
        return Slope(0.0, float("inf"))
    at, values = np.asarray(x) - np.mean(x), np.asarray(y) - np.mean(y)
    spread = float((at**2).sum())
    value = float((at * values).sum()) / spread
    error = np.sqrt(float(((values - value * at) ** 2).sum()) / (len(x) - 2) / spread)
    return Slope(value, float(error))
