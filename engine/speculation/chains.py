"""Chains of guesses that grow together: of all requests in a step, by one token with each pass of whoever guesses."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from engine.core.runner import SequenceRows
from engine.sampling.sampler import Draw
from engine.speculation.base import NO_GUESS, Ask, DraftTree
from engine.speculation.drawing import draw_next


class Chains:
    """One chain for each ask of a step, empty at first; asks are named by their place."""

    def __init__(self, asks: Sequence[Ask], eos_ids: Collection[int]) -> None:
        self._asks, self._eos_ids = asks, eos_ids
        self._tokens: list[list[int]] = [[] for _ in asks]
        self._shares: list[list[Tensor]] = [[] for _ in asks]

    def growing(self, places: Sequence[int]) -> list[int]:
        """Those of the places whose chain may become longer: none ends a text or is as long as was asked."""
        return [place for place in places if not self._done(place)]

    def rows(self, places: Sequence[int]) -> list[SequenceRows]:
        """Of each place one row, its last token: the last guess, or the last known token before the first.

        Its logits are wanted. The row is one of the target's own, recent pages and all.
        """
        return [self._row(place) for place in places]

    def _row(self, place: int) -> SequenceRows:
        request, guesses = self._asks[place].request, self._tokens[place]
        last = guesses[-1:] or request.tokens[-1:]
        more = (request.recent,) if request.recent else ()
        start = request.known - 1 + len(guesses)
        return SequenceRows(last, start, request.pages, 1, None, more, request.options.policy)

    def extend(self, places: Sequence[int], logits: Tensor) -> None:
        """A further guess for each place, drawn from its row of ``logits`` [places, V]."""
        requests = [self._asks[place].request for place in places]
        draws = [
            Draw(request.params, request.answer, request.tokens, self._tokens[place], request.history)
            for place, request in zip(places, requests, strict=True)
        ]
        modes = [request.acceptance for request in requests]
        tokens, shares = draw_next(logits, draws, modes)
        for row, place in enumerate(places):
            self._tokens[place].append(tokens[row])
            if shares is not None and modes[row] == "ratio":
                self._shares[place].append(shares[row])

    def tree(self, place: int, proposer: str) -> DraftTree:
        """The chain as guesses of ``proposer``, with what each was drawn from where it is tested by ratio."""
        tokens, shares = self._tokens[place], self._shares[place]
        if not tokens:
            return NO_GUESS
        return DraftTree(tuple(tokens), q=torch.stack(shares) if shares else None, proposer=proposer)

    def _done(self, place: int) -> bool:
        ask, tokens = self._asks[place], self._tokens[place]
        if len(tokens) >= min(ask.budget, ask.depth):
            return True
        return bool(tokens) and tokens[-1] in self._eos_ids and not ask.request.params.ignore_eos
