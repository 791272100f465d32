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

from msgspec import structs

from engine.protocol import Effect, Metric, Outcome
from engine.protocol.compared import LEAST_PAIRS

ALPHA = 0.0125
"""Chance of a false verdict on one figure. A comparison states up to three figures: under 4 % together."""
LEAST, MOST = LEAST_PAIRS, 32
"""Pairs: fewer than the first allow no verdict at this chance; more are not run."""
NARROW = 1.03
"""An interval within this factor of 1 has settled: more pairs would show nothing worth having."""


def estimate(before: Sequence[float], after: Sequence[float], metric: Metric = Metric()) -> Effect:
    """Compare pair by pair; of a metric that is ``counted``, which has no noise, one pair tells everything.

    Raises ValueError for sides of unlike lengths, or none at all.
    """
    pairs = [(b, a) if metric.lower_is_better else (a, b) for b, a in zip(before, after, strict=True)]
    found = Effect(
        metric=metric,
        before=statistics.median(before),
        after=statistics.median(after),
        ratio=None,
        low=0.0,
        high=0.0,
        pairs=len(pairs),
        verdict="few",
    )
    if any(over <= 0 or under <= 0 for over, under in pairs):  # whether they differ can be said, not by what ratio
        return structs.replace(found, verdict="none" if found.before == found.after else "few")
    ratios = sorted(over / under for over, under in pairs)
    outside = 0 if metric.counted else limit(len(ratios))
    kept = max(0, outside)
    low, high = ratios[kept], ratios[len(ratios) - 1 - kept]
    verdict = _verdict(low, high, outside)
    return structs.replace(found, ratio=statistics.median(ratios), low=low, high=high, verdict=verdict)


def settled(effect: Effect) -> bool:
    """Return True if further pairs can be spared."""
    if effect.verdict == "none":
        return effect.ratio is None or (effect.low > 1 / NARROW and effect.high < NARROW)
    return effect.verdict != "few"


def _verdict(low: float, high: float, outside: int) -> Outcome:
    """The verdict by the two digits that are shown."""
    if outside < 0:
        return "few"
    return "better" if round(low, 2) > 1 else "worse" if round(high, 2) < 1 else "none"


def limit(pairs: int) -> int:
    """Greatest number of ``pairs`` ratios that may lie on the other side of 1 for a verdict; -1 where none is
    possible."""
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
