"""First come, first served, with continuous and with static batching."""

from __future__ import annotations

from collections.abc import Sequence

from engine.catalogue import Choice
from engine.decoding.scheduling.policy import S, SchedulingPolicy, SchedulingTechnique


class StaticBatching(SchedulingPolicy):
    """A batch begins when the one before it has ended whole, as servers did before Orca (Yu et al. 2022).

    Bound: who waits does so for the longest answer of each batch of those who came before.
    """

    def admits(self, running: Sequence[S]) -> bool:
        return not running


FIRST_COME = SchedulingTechnique(
    choice=Choice("first_come", "first come, first served", explains="Requests start in the order of arrival."),
    policy=SchedulingPolicy,
)
STATIC = SchedulingTechnique(
    choice=Choice(
        "static",
        "static batching",
        explains="Waiting requests start together once all answers of the batch before have ended. It is here to be "
        "compared with: whoever arrives late waits for the longest answer.",
        also=("request-level scheduling",),
    ),
    paper="Yu et al. 2022, Orca (https://www.usenix.org/conference/osdi22/presentation/yu)",
    policy=StaticBatching,
)
