"""Shortest remaining first, by the most tokens that each request allows itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.catalogue import Choice
from engine.decoding.scheduling.policy import S, SchedulingPolicy, SchedulingTechnique, Tier, passed

AGED = 10.0
"""Seconds without service after which a sequence goes first."""


class ShortestRemaining(SchedulingPolicy):
    """The sequence with the fewest tokens to its limit goes first (Schrage 1968), unless one waited for long.

    With true lengths as limits, as in a simulation, it has the least mean time to completion of all.
    Bound: nobody is left out for longer than :data:`AGED` and a step for each who was so before him.
    """

    def __init__(self) -> None:
        super().__init__()
        self._aged: set[int] = set()

    def begin(self, running: Sequence[S], waiting: Sequence[S], now: float) -> None:
        self._aged = {
            each.arrival
            for each in (*running, *waiting)
            if passed(AGED, max(each.standing.served_at, each.standing.arrived_at), now)
        }

    def lane(self, sequence: S) -> int:
        return (sequence.reach - len(sequence.cache.tokens)).bit_length()

    def tier(self, sequence: S) -> Tier:
        cache = sequence.cache
        if sequence.arrival in self._aged:
            return 0, sequence.arrival
        return 1, sequence.reach - (cache.num_computed if cache.pages else cache.found())

    def on_progress(self, sequence: S, rows: int, seconds: float, now: float) -> None:
        sequence.standing.served_at = now

    def calm(self, running: Sequence[S], waiting: Sequence[S], now: float) -> float:
        return min(
            (AGED - (now - max(each.standing.served_at, each.standing.arrived_at)) for each in waiting),
            default=math.inf,
        )


SHORTEST = SchedulingTechnique(
    choice=Choice(
        "shortest",
        "shortest remaining first",
        explains="The request with the fewest tokens to its own limit goes first.",
        also=("SRPT", "shortest job first"),
    ),
    paper="Schrage 1968 (https://doi.org/10.1287/opre.16.3.687)",
    policy=ShortestRemaining,
)
