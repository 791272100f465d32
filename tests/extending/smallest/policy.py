"""The smallest prompt first; who was overtaken often goes first all the same."""

from __future__ import annotations

from engine.catalogue import Choice
from engine.decoding.scheduling.policy import MOST_OVERTAKEN, S, SchedulingPolicy, SchedulingTechnique, Tier


class SmallestPrompt(SchedulingPolicy):
    def tier(self, sequence: S) -> Tier:
        aged = sequence.standing.preemptions > 0 or sequence.standing.overtaken >= MOST_OVERTAKEN
        return (not aged, 0 if aged else sequence.cache.prompt_length)


TECHNIQUE = SchedulingTechnique(
    choice=Choice("smallest", "Smallest prompt first", explains="Short questions do not wait for long ones."),
    policy=SmallestPrompt,
)
