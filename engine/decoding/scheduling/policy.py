"""Order in which sequences are admitted and preempted. Pure: no tensors, no clock of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from engine.catalogue import Choice, Technique
from engine.protocol import keys

if TYPE_CHECKING:
    from engine.cache.sequences import SequenceCache


class Schedulable(Protocol):
    """Interface of a sequence for the scheduler; the last three fields are the scheduler's own."""

    arrival: int
    cache: SequenceCache
    last_step: int
    preemptions: int
    overtaken: int
    """Number of times that a sequence which arrived later was admitted first."""

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


class FirstComeFirstServed:
    """The order of admission and of preemption: oldest first in, newest first out; other orders extend it.

    A preempted sequence keeps its place in the queue.
    """

    def admission_order(self, waiting: Sequence[S], found: Callable[[S], int]) -> Sequence[S]:
        """The order in which sequences are tried; the first that does not fit ends the admissions of a step.

        ``found`` returns how many tokens of a sequence are cached and need not be computed.
        """
        return sorted(waiting, key=lambda sequence: sequence.arrival)

    def victim(self, holders: Sequence[S]) -> S:
        """The sequence that gives up its pages; ``holders`` is not empty."""
        return max(holders, key=lambda sequence: sequence.arrival)


class LongestPrefixFirst(FirstComeFirstServed):
    """The sequence with the longest cached prefix first, so that it is used before it is evicted (Zheng et al. 2023).

    Sequences that were preempted, or overtaken too often, go before the others in order of arrival. With many waiting,
    looking up all of them costs more than it gains: then the oldest go first.
    """

    MOST_WAITING = 128
    MOST_OVERTAKEN = 8

    def admission_order(self, waiting: Sequence[S], found: Callable[[S], int]) -> Sequence[S]:
        if len(waiting) > self.MOST_WAITING:
            return super().admission_order(waiting, found)

        def place(sequence: S) -> tuple[bool, int, int]:
            patient = not sequence.preemptions and sequence.overtaken < self.MOST_OVERTAKEN
            return patient, -found(sequence) if patient else 0, sequence.arrival

        return sorted(waiting, key=place)


@dataclass(frozen=True, kw_only=True)
class SchedulingTechnique(Technique):
    """A value of the switch "admission": an order of admission and of preemption."""

    policy: FirstComeFirstServed
    switch: str = keys.ADMISSION


LONGEST_PREFIX = SchedulingTechnique(
    choice=Choice("longest_prefix", "cache-aware", explains="The longest cached beginning goes first."),
    paper="Zheng et al. 2023, SGLang: RadixAttention (arXiv 2312.07104)",
    policy=LongestPrefixFirst(),
)
FIRST_COME = SchedulingTechnique(
    choice=Choice("first_come", "first come, first served", explains="Requests start in the order of arrival."),
    policy=FirstComeFirstServed(),
)
