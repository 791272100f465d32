"""Guesses from a small model with the same vocabulary, whose keys and values live on the same page numbers.

It samples with the target's own settings and noise, so that where both models agree on the scores they agree on the
token, at any temperature; for requests that are judged by ratio with noise of its own, and it says what it drew from.
Its arena may lag behind: ``Request.drafts`` counts the tokens it holds, and what is missing is fed with the next pass.
So nothing special happens after a fully accepted chain, whose last guess the draft never read, nor after preemption.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Protocol

import torch
from torch import Tensor

from engine.cache.policies import beside
from engine.core.batch import ForwardOutput
from engine.core.request import Request
from engine.core.runner import SequenceRows
from engine.speculation.base import Ask, DraftTree, Seen, Work
from engine.speculation.chains import Chains


class DraftRunner(Protocol):
    """What is needed of :class:`engine.core.runner.Runner`."""

    batch_seconds: float

    def forward(self, rows: Sequence[SequenceRows]) -> ForwardOutput:
        """Logits of the wanted rows."""


class DraftModelProposer:
    """Proposes chains, all requests of a step in one ragged batch per depth."""

    name = "draft"
    needs_hidden: frozenset[int] = frozenset()
    branches = False

    def __init__(
        self,
        runner: DraftRunner,
        vocabulary: int,
        eos_ids: Collection[int],
        weight_bytes: int,
        kv_bytes_per_token: float,
        max_rows: int = 2048,
        own_vocabulary: int | None = None,
    ) -> None:
        """``vocabulary`` is the target's, ``own_vocabulary`` the draft's (None: the same); ``max_rows`` bounds what one
        pass reads of texts it lags behind on."""
        self._runner, self._vocabulary, self._eos_ids = runner, vocabulary, frozenset(eos_ids)
        self._last_token = min(vocabulary, own_vocabulary or vocabulary) - 1
        self._weight_bytes, self._kv_bytes, self._max_rows = weight_bytes, kv_bytes_per_token, max_rows
        self._work = Work()

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """See :meth:`engine.speculation.base.Proposer.propose`."""
        chains = Chains(asks, self._eos_ids)
        places = self._catch_up(asks, chains)
        while places := chains.growing(places):
            rows = [
                row._replace(more_pages=(), policy=beside(asks[place].request.options.policy))
                for row, place in zip(chains.rows(places), places, strict=True)
            ]
            self._guess(rows, places, chains)
        return [chains.tree(place, self.name) for place in range(len(asks))]

    def see(self, seen: Sequence[Seen]) -> None:
        """It needs no states."""

    def observe(self, request: Request, tree: DraftTree, nodes: Sequence[int]) -> None:
        """The arena holds every guess but the last, and of those the accepted ones are right."""
        if tree.tokens:
            read = request.drafts.model + min(len(nodes), len(tree.tokens) - 1)
            request.drafts = request.drafts._replace(model=read)

    def release(self, request: Request) -> None:
        """Nothing is kept: pages and lengths belong to the request."""

    def take_work(self) -> Work:
        work, self._work = self._work, Work()
        return work

    def _catch_up(self, asks: Sequence[Ask], chains: Chains) -> list[int]:
        """Feed what the arena lacks and draw the first guesses; returns the places that are guessing."""
        rows: list[SequenceRows] = []
        guessing: list[int] = []
        left = self._max_rows
        fed: list[tuple[Request, int]] = []
        for place, (request, budget, end, _) in enumerate(asks):
            goal = request.known if budget else end
            start = request.drafts.model
            stop = min(goal, start + left)
            if stop <= start:
                continue
            left -= stop - start
            ready = budget > 0 and stop == goal
            # A larger model of a family has padding behind its vocabulary that its draft has no rows for. Such a token
            # is hardly ever drawn, but it can be, and then any other stands for it: only guesses depend on it.
            tokens = [min(token, self._last_token) for token in request.tokens[start:stop]]
            policy = beside(request.options.policy)
            rows.append(SequenceRows(tokens, start, request.pages, want_logits=int(ready), policy=policy))
            fed.append((request, stop))
            if ready:
                guessing.append(place)
        if rows:
            self._guess(rows, guessing, chains)
        for request, stop in fed:
            request.drafts = request.drafts._replace(model=stop)
        return guessing

    def _guess(self, rows: list[SequenceRows], places: Sequence[int], chains: Chains) -> None:
        """One pass; its logits are those of ``places`` in order."""
        began = time.perf_counter()
        logits = self._runner.forward(rows).logits
        if places:
            chains.extend(places, _fit(logits, self._vocabulary))
        tokens = sum(row.start + len(row.tokens) for row in rows)
        self._work = Work(
            self._work.seconds + time.perf_counter() - began - self._runner.batch_seconds,
            self._work.passes + 1,
            self._work.bytes_read + self._weight_bytes + int(self._kv_bytes * tokens),
        )


def _fit(logits: Tensor, vocabulary: int) -> Tensor:
    """Logits over the target's vocabulary: padding rows of the embedding differ between sizes of a family."""
    missing = vocabulary - logits.shape[1]
    if missing > 0:
        return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf)
    return logits[:, :vocabulary]
