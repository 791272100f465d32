"""Interface of a scheduling policy: who takes part in a step, in what order, and who gives way. Pure, on a clock that
is handed in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from engine.catalogue import Technique
from engine.decoding.scheduling.costs import StepCosts
from engine.decoding.scheduling.service import CLASSES, ServiceClass
from engine.protocol import keys

if TYPE_CHECKING:
    from engine.cache.sequences import SequenceCache

MOST_LOOKED_AT = 128
"""Sequences of a lane that a step looks at, the oldest: whoever stands further back waits for these anyway. With as
many, looking up all their prefixes costs more than it gains."""
MOST_OVERTAKEN = 8
MOST_PREEMPTED = 4


@dataclass(slots=True)
class QueueStanding:
    """What a policy knows of a sequence beside its tokens. Times are seconds of the clock that plans steps.

    ``service`` names its service class. ``level`` is its queue where a policy has several (-1: in none yet),
    ``attained`` the seconds that steps worked for it since it is in that queue, and ``served_at`` when one last did.
    ``overtaken`` counts how often a sequence which arrived later was admitted first, ``preemptions`` how often this one
    was sent back to the queue, and ``last_step`` numbers the step that worked for it last (-1: none).
    """

    arrived_at: float = 0.0
    service: str = "standard"
    overtaken: int = 0
    preemptions: int = 0
    last_step: int = -1
    level: int = -1
    attained: float = 0.0
    served_at: float = 0.0


class Schedulable(Protocol):
    """Interface of a sequence for the scheduler; ``standing`` is the scheduler's and its policy's own."""

    arrival: int
    cache: SequenceCache
    standing: QueueStanding

    @property
    def cached(self) -> bool:
        """True if keys and values outlive a step."""

    @property
    def reach(self) -> int:
        """The maximum length of the sequence in tokens."""

    @property
    def max_draft_tokens(self) -> int:
        """The most draft tokens that the sequence may have in one step, all branches of a tree included."""


S = TypeVar("S", bound=Schedulable)
Tier = tuple[float, ...]
"""Sequences of a smaller tier go before those of a larger one."""


class SchedulingPolicy:
    """First come, first served: one tier, the oldest first in, the newest first out. Other policies extend it.

    Within a tier those that run go before those that wait, and these in order of arrival or, ``prefix_first``, of the
    tokens that are found in the cache (Zheng et al. 2023). A preempted sequence keeps its place in the queue.
    Bound: nobody waits for one that came later, but for :data:`MOST_OVERTAKEN` with more in the cache.
    """

    patient = False
    """True if a sequence of a tier behind a prompt that is read in a step is not served in that step."""

    def __init__(self) -> None:
        self.prefix_first = False
        self.classes = CLASSES

    def enter(self, sequence: S, costs: StepCosts) -> None:
        """A sequence comes, or this policy does while the sequence is there."""

    def lane(self, sequence: S) -> int:
        """The lane in which it waits. Those of a lane are of like tiers, and the oldest of it are looked at."""
        return 0

    def begin(self, running: Sequence[S], waiting: Sequence[S], now: float) -> None:
        """A step is planned of these at ``now``; more may wait."""

    def tier(self, sequence: S) -> Tier:
        return ()

    def admits(self, running: Sequence[S]) -> bool:
        """Return True if one that waits may begin while these run."""
        return True

    def level(self, sequence: S) -> int:
        """A sequence without room takes the pages of a running one of a larger level."""
        return 0

    def budget(self, decodes: Sequence[S], most: int, costs: StepCosts) -> int:
        """The rows of a step in which these decode, ``most`` at most: see :meth:`ServiceClass.within`."""
        if not decodes:
            return most
        return self.tightest(decodes).within(len(decodes), most, costs)

    def service(self, sequence: S) -> ServiceClass:
        """Its class."""
        return self.classes[sequence.standing.service]

    def tightest(self, decodes: Sequence[S]) -> ServiceClass:
        """The class of these, of which there is one at least, that allows the least time between tokens."""
        return min(map(self.service, decodes), key=lambda each: each.between_tokens)

    def on_progress(self, sequence: S, rows: int, seconds: float, now: float) -> None:
        """Count a step that computed ``rows`` rows of the sequence and took ``seconds``."""

    def calm(self, running: Sequence[S], waiting: Sequence[S], now: float) -> float:
        """Seconds for which it ranks alike while nobody comes or ends, and all that run are served."""
        return math.inf

    def order(self, waiting: Sequence[S], found: Callable[[S], int]) -> list[S]:
        """These that wait in the order in which they are tried. ``found`` returns how many tokens of a sequence are
        cached and need not be computed."""
        looks = self.prefix_first and len(waiting) < MOST_LOOKED_AT

        def place(sequence: S) -> tuple[Tier, bool, int, int]:
            # Who was preempted, or overtaken too often, goes before the others in order of arrival.
            patient = not sequence.standing.preemptions and sequence.standing.overtaken < MOST_OVERTAKEN
            by_prefix = looks and patient
            return self.tier(sequence), by_prefix, -found(sequence) if by_prefix else 0, sequence.arrival

        return sorted(waiting, key=place)

    def victim(self, holders: Sequence[S]) -> S:
        """The sequence that gives up its pages; ``holders`` is not empty."""
        return max(holders, key=lambda sequence: (self.page_level(sequence), sequence.arrival))

    def page_level(self, sequence: S) -> int:
        """Its level, or the first of one that gave its pages up often: else two might take them in turns for ever."""
        return self.level(sequence) if sequence.standing.preemptions < MOST_PREEMPTED else 0


def passed(seconds: float, since: float, now: float) -> bool:
    """Return True if more than ``seconds`` passed, or nobody knows: the clock was put back."""
    return not 0 <= now - since <= seconds


@dataclass(frozen=True, kw_only=True)
class SchedulingTechnique(Technique):
    """A value of the switch "admission": a policy, made anew when it is chosen."""

    policy: Callable[[], SchedulingPolicy]
    switch: str = keys.ADMISSION
