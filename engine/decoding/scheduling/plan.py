"""Plan of a step: the rows of each sequence, and how prompts share them. Pure: no tensors, no clock."""

from __future__ import annotations

from itertools import accumulate
from typing import Generic, NamedTuple

from engine.cache.policies import NO_LIMIT
from engine.decoding.scheduling.policy import S

MAX_RUNNING = 256
SHARE = 3
"""A prompt takes one part in this many of the rows that are left while one at most half as long waits. The step
that reads a short newcomer is a short one, too: with the rest of the step in which it came, one and a half at most."""


class Limits(NamedTuple):
    """The options that scheduling obeys, read again at each step."""

    token_budget: int = 512
    chunked: bool = True
    whole_context: bool = False
    reading_budget: int = 0
    """The token budget of a step in which nothing decodes, so that no answer waits for it, where it is the larger."""
    max_batch: int = MAX_RUNNING
    """The most sequences of a step."""
    targets: bool = True
    """Steps are held to the targets of service classes."""

    @property
    def most(self) -> int:
        """The most tokens of any step."""
        return max(self.token_budget, self.reading_budget)


class Slice(NamedTuple, Generic[S]):
    """Work of one sequence in a step: ``rows`` of its known tokens, then up to ``drafts`` draft tokens to verify.

    ``last``: all known tokens will be computed, so that a token is drawn.
    """

    sequence: S
    rows: int
    last: bool
    drafts: int = 0


class Plan(NamedTuple, Generic[S]):
    """One step. ``preempted`` went back to the queue; ``failed`` can never get the pages it needs."""

    slices: list[Slice[S]]
    admitted: list[S]
    preempted: list[S]
    failed: list[S]

    @property
    def rows(self) -> int:
        """Draft tokens included."""
        return sum(piece.rows + piece.drafts for piece in self.slices)

    @property
    def reads(self) -> bool:
        """True if some prompt is read in the step."""
        return any(piece.rows > 1 for piece in self.slices)


def shares(reading: list[int], queue: list[int]) -> list[int]:
    """Divisors for the prompts in order: the rows that are left when a prompt's turn comes are divided by it; 0: no
    turn.

    A prompt gives way where one at most half as long comes after it or waits. The first that does takes its share all
    the same, so that it comes to its end; the others have no turn, so that the step is short.
    """
    lengths = reading + queue
    newest = min(queue, default=NO_LIMIT)
    shortest = list(accumulate(reversed(reading[1:]), min, initial=newest))[::-1] if reading else []
    shortest += [newest] * len(queue)
    gives_way = [2 * other <= length < NO_LIMIT for length, other in zip(lengths, shortest, strict=True)]
    first = gives_way.index(True) if True in gives_way else None
    return [1 if not way else SHARE if place == first else 0 for place, way in enumerate(gives_way)]
