"""Guesses from the text itself: find the last few tokens earlier on, propose what followed them there.

Source: Saxena 2023, prompt lookup decoding. The longest suffix wins, and of its matches the most recent one. The index
of a request grows with its tokens, so that a step costs no scan.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.core.request import Request
from engine.speculation.base import NO_GUESS, Ask, DraftTree, Seen, Work

N_MAX = 4
N_MIN = 2


class NgramIndex:
    """For each n from ``n_min`` to ``n_max``: where the text last went on after those n tokens."""

    def __init__(self, n_min: int = N_MIN, n_max: int = N_MAX) -> None:
        self.n_min, self.n_max = n_min, n_max
        self.indexed = 0
        self._places: dict[tuple[int, ...], int] = {}

    def extend(self, tokens: Sequence[int]) -> None:
        """Enter every n-gram that has a successor: the suffix itself has none, so it never matches itself."""
        places = self._places
        # An entry names the token that came next, so the n-gram ends just before ``place``.
        for place in range(max(1, self.indexed), len(tokens)):
            for n in range(self.n_min, min(self.n_max, place) + 1):
                places[tuple(tokens[place - n : place])] = place
        self.indexed = max(self.indexed, len(tokens))

    def lookup(self, tokens: Sequence[int], count: int) -> tuple[int, ...]:
        """Up to ``count`` tokens that followed the longest known suffix of ``tokens``.

        Where the earlier text runs into the suffix, the guess goes on from its own beginning: a loop is guessed whole.
        """
        for n in range(min(self.n_max, len(tokens) - 1), self.n_min - 1, -1):
            place = self._places.get(tuple(tokens[-n:]))
            if place is not None:
                period = len(tokens) - place
                return tuple(tokens[place + i % period] for i in range(count))
        return ()


class NgramProposer:
    """One index per request, over prompt and output."""

    name = "ngram"
    needs_hidden: frozenset[int] = frozenset()
    branches = False

    def __init__(self) -> None:
        self._indexes: dict[tuple[str, int], NgramIndex] = {}

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """See :meth:`engine.speculation.base.Proposer.propose`."""
        return [self._propose(ask) if ask.budget else NO_GUESS for ask in asks]

    def _propose(self, ask: Ask) -> DraftTree:
        tokens = ask.request.tokens
        index = self._indexes.setdefault(ask.request.owner, NgramIndex())
        index.extend(tokens)
        return DraftTree(index.lookup(tokens, min(ask.budget, ask.depth)), proposer=self.name)

    def see(self, seen: Sequence[Seen]) -> None:
        """It needs no states."""

    def observe(self, request: Request, tree: DraftTree, nodes: Sequence[int]) -> None:
        """Nothing to learn: the index reads the tokens themselves."""

    def release(self, request: Request) -> None:
        self._indexes.pop(request.owner, None)

    def take_work(self) -> Work:
        return Work()
