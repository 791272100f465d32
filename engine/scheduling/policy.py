"""Who is served first and who gives way. Pure: no tensors, no clock of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Schedulable(Protocol):
    """What scheduling needs to know of a sequence; only the scheduler changes its pages and ``last_step``."""

    arrival: int
    num_computed: int
    draft_computed: int
    pages: list[int]
    last_step: int
    preemptions: int

    @property
    def owner(self) -> tuple[str, int]:
        """Its name in the page pool's ledger."""

    @property
    def known(self) -> int:
        """Tokens of prompt and output."""

    @property
    def pending(self) -> int:
        """Rows still to compute before the next token can be drawn."""

    @property
    def cached(self) -> bool:
        """Whether keys and values outlive a step."""

    @property
    def reach(self) -> int:
        """The longest that the sequence may become, in tokens."""


S = TypeVar("S", bound=Schedulable)


class Policy(Protocol):
    """The order of admission and of preemption."""

    def admission_order(self, waiting: Sequence[S]) -> Sequence[S]:
        """Who is tried first; the first that does not fit ends the admissions of a step."""

    def victim(self, holders: Sequence[S]) -> S:
        """Who gives up its pages; ``holders`` is not empty."""


class FirstComeFirstServed:
    """Oldest first in, newest first out. A preempted sequence keeps its place in the queue."""

    def admission_order(self, waiting: Sequence[S]) -> Sequence[S]:
        return sorted(waiting, key=lambda sequence: sequence.arrival)

    def victim(self, holders: Sequence[S]) -> S:
        return max(holders, key=lambda sequence: sequence.arrival)
