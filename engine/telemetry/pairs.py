"""Two settings compared by pairs of runs: a ratio, the interval around it, and whether that is a clear difference.

Who runs the pairs draws the order within each by lot. Where the setting changes nothing, which run of a pair comes out
better is then a fair coin, however the noise is made: outliers, drift and a neighbour that comes and goes included.
The verdict is the sign test (Dixon & Mood 1946), and the interval is its inversion: from one of the smallest ratios to
one of the largest (Thompson 1936). It may be looked at after every pair, and the runs may stop as soon as it is clear:
:data:`ALPHA` bounds the chance that fair coins *ever* give a verdict, over all looks together.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from engine.protocol import Outcome

ALPHA = 0.0125
"""Chance of a false verdict on one figure. A comparison states up to three figures: under 4 % together."""
LEAST, MOST = 8, 32
"""Pairs: fewer than the first allow no verdict at this chance; more are not run."""
NARROW = 1.03
"""An interval within this factor of 1 has settled: more pairs would show nothing worth having."""


class PairedEstimate(NamedTuple):
    """Medians of both sides; ``ratio`` is the median gain, above 1 where the second side is better.

    ``low`` and ``high`` bound the interval for it. ``ratio`` is None where there is nothing to divide.
    """

    before: float
    after: float
    ratio: float | None
    low: float
    high: float
    pairs: int
    verdict: Outcome

    @property
    def settled(self) -> bool:
        """Whether further pairs can be spared."""
        if self.verdict == "none":
            return self.ratio is None or (self.low > 1 / NARROW and self.high < NARROW)
        return self.verdict != "few"


def estimate(
    before: Sequence[float], after: Sequence[float], *, lower_is_better: bool = False, counted: bool = False
) -> PairedEstimate:
    """Compare pair by pair; ``counted``: figures without noise, of which one pair tells everything.

    Raises ValueError for sides of unlike lengths, or none at all.
    """
    medians = statistics.median(before), statistics.median(after)
    pairs = [(b, a) if lower_is_better else (a, b) for b, a in zip(before, after, strict=True)]
    if any(
        over <= 0 or under <= 0 for over, under in pairs
    ):  # no ratios: whether they differ can be said, not how much
        return PairedEstimate(*medians, None, 0.0, 0.0, len(pairs), "none" if medians[0] == medians[1] else "few")
    ratios = sorted(over / under for over, under in pairs)
    outside = 0 if counted else limit(len(ratios))
    kept = max(0, outside)
    low, high = ratios[kept], ratios[len(ratios) - 1 - kept]
    return PairedEstimate(*medians, statistics.median(ratios), low, high, len(ratios), _verdict(low, high, outside))


def _verdict(low: float, high: float, outside: int) -> Outcome:
    """The verdict by the two digits that are shown."""
    if outside < 0:
        return "few"
    return "better" if round(low, 2) > 1 else "worse" if round(high, 2) < 1 else "none"


def limit(pairs: int) -> int:
    """How many of ``pairs`` ratios may lie on the other side of 1 for a verdict; -1 where none is possible."""
    return _limits()[min(pairs, MOST)]


@cache
def _limits() -> list[int]:
    """The limit for each number of pairs, such that fair coins cross any of them with a chance of ALPHA at most.

    ``paths[s]`` is the chance of s gains so far without a verdict. The chance that may be spent grows evenly from the
    first look.
    """
    limits, spent, paths = [-1], 0.0, [1.0]
    first = 2 * 0.5**LEAST
    for n in range(1, MOST + 1):
        paths = [(x + y) / 2 for x, y in zip([0.0, *paths], [*paths, 0.0], strict=True)]
        allowed = first + (ALPHA - first) * (n - LEAST) / (MOST - LEAST)
        outside = -1
        while n >= LEAST and spent + 2 * paths[outside + 1] <= allowed:
            outside += 1
            spent += 2 * paths[outside]
            paths[outside] = paths[n - outside] = 0.0
        limits.append(outside)
    return limits
