"""What a soak found, and whether it is flat."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

WARM_UP = 1 / 3
"""Share of a soak in which caches, heaps and arenas may fill."""
SURE = 2.0
"""A slope counts as above zero from this many standard errors."""
GROWTH = 0.02
"""Share of the memory by which it may have grown over the whole soak, sure or not."""
MORE_DESCRIPTORS = 2
_ROWS = 12
_MB = 1e6


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

    @property
    def words(self) -> str:
        return f"{self.rss / _MB:.0f} MB, {self.in_use} pages in use, {self.cached} cached"


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
        """What grew, as a sentence; "" where nothing did."""
        found, warm = self.slope, self.warm
        growth = found.value * self.seconds
        if found.value > SURE * found.error and growth > GROWTH * warm[0].rss:
            return f"Memory grows: {growth / _MB:.0f} MB in {self.seconds:.0f} seconds."
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


def show_soak(figures: SoakFigures, console: Console) -> None:
    table = Table(title=f"{figures.model}: random use for {figures.seconds:.0f} s")
    for column in ("second", "memory, MB", "descriptors", "pages in use", "pages cached", "running", "queued"):
        table.add_column(column, justify="right")
    step = max(1, len(figures.samples) // _ROWS)
    for sample in [*figures.samples[:-1:step], figures.samples[-1]]:
        cells = (sample.descriptors, sample.in_use, sample.cached, sample.running, sample.queued)
        table.add_row(f"{sample.seconds:.0f}", f"{sample.rss / _MB:.0f}", *(f"{cell:,}" for cell in cells))
    console.print(table)
    done = ", ".join(f"{count:,} {name}" for name, count in figures.counts.items() if name not in (*ENDS, "asked"))
    ends = ", ".join(f"{figures.counts[name]:,} {name}" for name in ENDS if figures.counts.get(name))
    console.print(f"Done: {done}.")
    console.print(f"Of {figures.counts.get('asked', 0):,} answers: {ends}; {figures.lost} lost.")
    found = figures.slope
    told = f"{60 * found.value / _MB:+.2f} ± {60 * found.error / _MB:.2f} MB a minute. {figures.grows or 'Flat.'}"
    if not np.isfinite(found.error):
        told = figures.grows or "too few loads to tell whether it grows. Let it run for longer."
    console.print(f"Memory with an empty cache, after the first third: {told}")
    for sentence in figures.wrong:
        console.print(f"wrong: {sentence}")
