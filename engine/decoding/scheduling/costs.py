"""What steps cost on this machine with this model: seconds by rows, learned from the steps themselves."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

NEWEST = 0.1
"""The weight of a new step among those of its size."""


class StepCosts:
    """Seconds of steps by their rows: means of steps of like size, each up to twice as large as the ones before, and
    straight lines between them. No step is cheaper than a smaller one."""

    def __init__(self, *known: tuple[int, float]) -> None:
        """``known``: rows and seconds of steps."""
        self._means: dict[int, tuple[float, float]] = {}
        for rows, seconds in known:
            self.learn(rows, seconds)

    def learn(self, rows: int, seconds: float) -> None:
        """Count a step of ``rows`` rows, draft tokens included; one without rows says nothing."""
        if rows:
            size = rows.bit_length()
            mean, took = self._means.get(size, (float(rows), seconds))
            self._means[size] = mean + NEWEST * (rows - mean), took + NEWEST * (seconds - took)

    @property
    def points(self) -> list[tuple[float, float]]:
        """Rows and seconds, both growing."""
        found = sorted(self._means.values())
        return list(zip((rows for rows, _ in found), accumulate((each for _, each in found), max), strict=True))

    def seconds(self, rows: int) -> float | None:
        """The expected seconds of a step of ``rows`` rows; None while only steps of one size were seen."""
        points = self.points
        if len(points) < 2:
            return None
        place = min(max(1, bisect_left(points, (rows, 0.0))), len(points) - 1)
        (low, before), (high, after) = points[place - 1 : place + 1]
        return max(0.0, before + (rows - low) * (after - before) / (high - low))

    def rows(self, seconds: float) -> int | None:
        """The most rows of a step that takes ``seconds`` at most, 0 where none does; None where not known yet, or where
        more rows take no longer."""
        points = self.points
        if len(points) < 2 or points[-1][1] <= points[0][1]:
            return None
        above = next((place for place, (_, each) in enumerate(points) if each > seconds), len(points) - 1)
        low, high = points[max(0, above - 1)], points[max(1, above)]
        if high[1] <= low[1]:
            return int(low[0])
        return max(0, int(low[0] + (seconds - low[1]) * (high[0] - low[0]) / (high[1] - low[1])))
