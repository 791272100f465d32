"""Draft tokens from the text itself: find the last few tokens earlier in it, propose what followed them there.

Source: Saxena 2023, prompt lookup decoding. The longest suffix wins, and of its matches the most recent one. The index
of a request grows with its tokens, so that a step needs no scan.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.decoding.request import Request
from engine.decoding.speculation.base import NO_DRAFT, DraftRequest, DraftTree, Proposer
from engine.decoding.speculation.ngram.chat_index import ChatIndex

N_MAX = 4
N_MIN = 2


class NgramIndex:
    """Maps each n-gram of the text, n from ``n_min`` to ``n_max``, to the place after its latest occurrence."""

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

    def match(self, tokens: Sequence[int]) -> tuple[int, int]:
        """The length of the longest known suffix of ``tokens`` and the place of what followed it; length 0: none."""
        for n in range(min(self.n_max, len(tokens) - 1), self.n_min - 1, -1):
            place = self._places.get(tuple(tokens[-n:]))
            if place is not None:
                return n, place
        return 0, -1

    def lookup(self, tokens: Sequence[int], count: int) -> tuple[int, ...]:
        """Up to ``count`` tokens that followed the longest known suffix of ``tokens``."""
        n, place = self.match(tokens)
        return following(tokens, place, count) if n else ()


def following(tokens: Sequence[int], place: int, count: int) -> tuple[int, ...]:
    """``count`` tokens from ``place`` on.

    Where they run past the end of the text, they start over at ``place``, so that a repeating loop is drafted whole.
    """
    period = len(tokens) - place
    return tuple(tokens[place + i % period] for i in range(count))


class NgramProposer(Proposer):
    """One index per request, over prompt and output, and one over all chats of those who want it.

    A request without ``ngram_chats`` neither finds anything of other chats nor is found by them: its text is not fed.
    """

    name = "ngram"

    def __init__(self) -> None:
        self._indexes: dict[tuple[str, int], NgramIndex] = {}
        self._chats: ChatIndex | None = None

    def has_match(self, request: Request) -> bool:
        """Implements :meth:`engine.decoding.speculation.base.Proposer.has_match`."""
        return bool(self._find(request, 1))

    def propose(self, asks: Sequence[DraftRequest]) -> list[DraftTree]:
        """Implements :meth:`engine.decoding.speculation.base.Proposer.propose`."""
        return [self._propose(ask) if ask.budget else NO_DRAFT for ask in asks]

    def _propose(self, ask: DraftRequest) -> DraftTree:
        found = self._find(ask.request, min(ask.budget, ask.depth))
        return DraftTree(found, proposer=self.name) if found else NO_DRAFT

    def _find(self, request: Request, count: int) -> tuple[int, ...]:
        """Up to ``count`` tokens from a match in the request's own text, or from a longer match in another chat's."""
        tokens = request.tokens
        index = self._indexes.setdefault(request.owner, NgramIndex())
        index.extend(tokens)
        n, place = index.match(tokens)
        if n < index.n_max and request.options.ngram_chats and self._chats is not None:
            foreign = self._chats.lookup(tokens, count, more_than=n)
            if foreign:
                return foreign
        return following(tokens, place, count) if n else ()

    def release(self, request: Request) -> None:
        """Drop the request's index and, with ``ngram_chats``, add its text to the index over all chats."""
        self._indexes.pop(request.owner, None)
        if request.options.ngram_chats:
            if self._chats is None:
                self._chats = ChatIndex()
            # A chat's next turn goes on with this text, so that only what it adds is fed then.
            self._chats.feed((request.chat, request.answer) if request.chat else request.owner, request.tokens)

    def forget_chats(self) -> None:
        """Drop the texts of all chats: one was deleted, and the index cannot remove the text of a single chat."""
        self._chats = None
