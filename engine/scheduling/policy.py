"""Who is served first and who gives way. Pure: no tensors, no clock of its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol, TypeVar

from engine.cache.pool import PAGE_SIZE
from engine.cache.radix_node import Drafts, Held, Key, Node, page_keys


class Schedulable(Protocol):
    """What scheduling needs to know of a sequence; only the scheduler changes its pages and ``last_step``."""

    arrival: int
    tokens: list[int]
    prompt_length: int
    num_computed: int
    drafts: Drafts
    pages: list[int]
    last_step: int
    preemptions: int
    overtaken: int
    """How often somebody who came later was admitted before."""
    namespace: Hashable
    """Which pages of the prefix tree are its own kind; None: it shares with nobody."""
    chat: str
    node: Node | None
    shared: int
    held: Held | None
    recent: list[int]
    """Where recent tokens have pages of their own (KIVI): by place in the sequence, 0 where there is none."""
    found: tuple[int, int]
    page_keys: list[Key]

    @property
    def fork_of(self) -> Schedulable | None:
        """Another answer to the same prompt, whose pages it may begin with."""

    @property
    def shareable(self) -> int:
        """Tokens whose keys and values are what anybody else would compute."""

    @property
    def dead_pages(self) -> tuple[int, int]:
        """Pages [first, stop) of the sequence that no row of it will read again."""

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
    def longest_chunk(self) -> int:
        """The most rows of it that one step may read."""

    def kept_pages(self, length: int) -> int:
        """The most pages that it holds between steps when it has so many tokens."""

    @property
    def cached(self) -> bool:
        """Whether keys and values outlive a step."""

    @property
    def reach(self) -> int:
        """The longest that the sequence may become, in tokens."""

    @property
    def most_guesses(self) -> int:
        """The most guesses that may follow what it knows in one step, alternatives to each other included."""


S = TypeVar("S", bound=Schedulable)


def keys_of(sequence: Schedulable, tokens: int) -> list[Key]:
    """The keys of the whole pages of the sequence's first ``tokens`` tokens; each is made once."""
    whole = tokens // PAGE_SIZE
    known = sequence.page_keys
    if len(known) < whole:
        known += page_keys(sequence.tokens[: whole * PAGE_SIZE], len(known))
    return known[:whole]


class Policy(Protocol):
    """The order of admission and of preemption."""

    def admission_order(self, waiting: Sequence[S], found: Callable[[S], int]) -> Sequence[S]:
        """Who is tried first; the first that does not fit ends the admissions of a step.

        ``found`` tells how many tokens of a sequence need not be computed.
        """

    def victim(self, holders: Sequence[S]) -> S:
        """Who gives up its pages; ``holders`` is not empty."""


class FirstComeFirstServed:
    """Oldest first in, newest first out. A preempted sequence keeps its place in the queue."""

    def admission_order(self, waiting: Sequence[S], found: Callable[[S], int]) -> Sequence[S]:
        return sorted(waiting, key=lambda sequence: sequence.arrival)

    def victim(self, holders: Sequence[S]) -> S:
        return max(holders, key=lambda sequence: sequence.arrival)


class LongestPrefixFirst(FirstComeFirstServed):
    """Those first of whom the cache holds most, so that it is used before it is given up (Zheng et al. 2023).

    Who was preempted, or overtaken too often, goes before them in order of arrival. With many waiting, looking
    everybody up costs more than it gives: then the oldest are first.
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
