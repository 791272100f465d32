"""The shortest remaining work first (Schrage 1968), and the longest gives way; who was overtaken often goes first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.catalogue import Choice
from engine.decoding.scheduling.policy import FirstComeFirstServed, S, SchedulingTechnique

MOST_OVERTAKEN = 4


class ShortestRemaining(FirstComeFirstServed):
    def admission_order(self, waiting: Sequence[S], found: Callable[[S], int]) -> Sequence[S]:
        def place(sequence: S) -> tuple[bool, int, int]:
            aged = sequence.preemptions > 0 or sequence.overtaken >= MOST_OVERTAKEN
            return not aged, 0 if aged else sequence.reach - found(sequence), sequence.arrival

        return sorted(waiting, key=place)

    def victim(self, holders: Sequence[S]) -> S:
        return max(holders, key=lambda sequence: (sequence.reach, sequence.arrival))


TECHNIQUE = SchedulingTechnique(
    choice=Choice("shortest", "Shortest remaining first", explains="Short answers do not wait for long ones."),
    paper="Schrage 1968 (https://doi.org/10.1287/opre.16.3.687)",
    policy=ShortestRemaining(),
)
