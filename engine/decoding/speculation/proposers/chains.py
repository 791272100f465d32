"""Draft chains of all requests in a step; each pass of the drafter extends every chain by one token."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from engine.compute.batch import SequenceRows
from engine.compute.sampling.sampler import Draw
from engine.decoding.speculation.base import NO_DRAFT, DraftRequest, DraftTree
from engine.decoding.speculation.proposers.drawing import draw_next


class Chains:
    """One draft chain for each ask of a step, empty at first; ``place`` is the index of an ask."""

    def __init__(self, asks: Sequence[DraftRequest], eos_ids: Collection[int]) -> None:
        self._asks, self._eos_ids = asks, eos_ids
        self._tokens: list[list[int]] = [[] for _ in asks]
        self._shares: list[list[Tensor]] = [[] for _ in asks]

    def growing(self, places: Sequence[int]) -> list[int]:
        """The places whose chain may grow: it is shorter than was asked for and does not end in an EOS token."""
        return [place for place in places if not self._done(place)]

    def rows(self, places: Sequence[int]) -> list[SequenceRows]:
        """One row for each place: its last draft token, or the request's last known token where there is none yet.

        Logits are wanted for each row. The rows use the target's pages, including those for recent tokens.
        """
        return [self._row(place) for place in places]

    def _row(self, place: int) -> SequenceRows:
        request, draft_tokens = self._asks[place].request, self._tokens[place]
        last = draft_tokens[-1:] or request.tokens[-1:]
        start = request.known - 1 + len(draft_tokens)
        more, policy = request.cache.more_pages, request.options.policy
        return SequenceRows(last, start, request.pages, 1, None, more, policy, axes=request.axes)

    def extend(self, places: Sequence[int], logits: Tensor) -> None:
        """Append a draft token to the chain of each place, drawn from its row of ``logits`` [places, V]."""
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
        """The chain as drafted by ``proposer``; with the distributions it was drawn from, for the ratio test."""
        tokens, shares = self._tokens[place], self._shares[place]
        if not tokens:
            return NO_DRAFT
        return DraftTree(tuple(tokens), q=torch.stack(shares) if shares else None, proposer=proposer)

    def _done(self, place: int) -> bool:
        ask, tokens = self._asks[place], self._tokens[place]
        if len(tokens) >= min(ask.budget, ask.depth):
            return True
        return bool(tokens) and tokens[-1] in self._eos_ids and not ask.request.params.ignore_eos
