"""What followed each token the last time, in any text: the table of Token Recycling (Luo et al. 2024), one wide."""

from __future__ import annotations

from collections.abc import Sequence

from engine.decoding.request import Request
from engine.decoding.speculation.base import NO_DRAFT, DraftRequest, DraftTree, Proposer


class Bigram(Proposer):
    name = "bigram"

    def __init__(self) -> None:
        self._followers: dict[int, int] = {}
        self._read: dict[tuple[str, int], int] = {}

    def propose(self, asks: Sequence[DraftRequest]) -> list[DraftTree]:
        for ask in asks:
            self._learn(ask.request)
        return [self._draft(ask) for ask in asks]

    def release(self, request: Request) -> None:
        self._read.pop(request.owner, None)

    def forget_chats(self) -> None:
        self._followers.clear()

    def _learn(self, request: Request) -> None:
        tokens, start = request.tokens, self._read.get(request.owner, 0)
        self._followers.update(zip(tokens[start:], tokens[start + 1 :], strict=False))
        self._read[request.owner] = len(tokens) - 1

    def _draft(self, ask: DraftRequest) -> DraftTree:
        token, found = ask.request.tokens[-1], list[int]()
        while len(found) < min(ask.budget, ask.depth) and token in self._followers:
            token = self._followers[token]
            found.append(token)
        return DraftTree(tuple(found), proposer=self.name) if found else NO_DRAFT
