"""Draft tokens from a small model with the same vocabulary, whose keys and values use the target's page numbers.

The draft model samples with the target's own settings and noise, so that where both models agree on the scores they
agree on the token, at any temperature. For requests that use the ratio test it samples with noise of its own and hands
on the distributions. Its arena may lag behind: ``SequenceCache.drafts`` counts the tokens it holds, and the missing
ones are fed with the next pass. So neither a fully accepted chain, whose last token the draft never read, nor
preemption is a special case.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from engine.compute.batch import SequenceRows
from engine.compute.runner.runner import Runner
from engine.decoding.request import Request
from engine.decoding.speculation.base import DraftRequest, DraftTree, Proposer
from engine.decoding.speculation.proposers.chains import Chains


class DraftModelProposer(Proposer):
    """Proposes chains, all requests of a step in one ragged batch per depth."""

    name = "draft"

    def __init__(
        self,
        runner: Runner,
        vocabulary: int,
        eos_ids: Collection[int],
        weight_bytes: int,
        kv_bytes_per_token: float,
        max_rows: int = 2048,
        own_vocabulary: int | None = None,
    ) -> None:
        """``vocabulary`` is the target's, ``own_vocabulary`` the draft's (None: the same); ``max_rows`` limits the rows
        of one catch-up pass over tokens that the draft's arena does not hold yet."""
        self._runner, self._vocabulary, self._eos_ids = runner, vocabulary, frozenset(eos_ids)
        self._last_token = min(vocabulary, own_vocabulary or vocabulary) - 1
        self._weight_bytes, self._kv_bytes, self._max_rows = weight_bytes, kv_bytes_per_token, max_rows

    def propose(self, asks: Sequence[DraftRequest]) -> list[DraftTree]:
        """Implements :meth:`engine.decoding.speculation.base.Proposer.propose`."""
        chains = Chains(asks, self._eos_ids)
        places = self._catch_up(asks, chains)
        while places := chains.growing(places):
            rows = [
                row._replace(more_pages=(), policy=asks[place].request.options.policy.companion)
                for row, place in zip(chains.rows(places), places, strict=True)
            ]
            self._draft(rows, places, chains)
        return [chains.tree(place, self.name) for place in range(len(asks))]

    def observe(self, request: Request, tree: DraftTree, nodes: Sequence[int]) -> None:
        """Count the accepted tokens as held: the draft has read every draft token of a chain except the last."""
        if tree.tokens:
            read = request.cache.drafts.model + min(len(nodes), len(tree.tokens) - 1)
            request.cache.drafts = request.cache.drafts._replace(model=read)

    def _catch_up(self, asks: Sequence[DraftRequest], chains: Chains) -> list[int]:
        """Feed the tokens that the arena lacks and draw the first draft tokens; returns the places that draft."""
        rows: list[SequenceRows] = []
        drafting: list[int] = []
        left = self._max_rows
        fed: list[tuple[Request, int]] = []
        for place, (request, budget, end, depth) in enumerate(asks):
            goal = request.known if budget else end
            start = request.cache.drafts.model
            stop = min(goal, start + left)
            if stop <= start:
                continue
            left -= stop - start
            ready = min(budget, depth) > 0 and stop == goal
            # A larger model of a family pads its vocabulary with ids that its draft has no embedding rows for. Such a
            # token is hardly ever drawn; where it is, the draft's last token replaces it. Only drafts depend on it.
            tokens = [min(token, self._last_token) for token in request.tokens[start:stop]]
            policy = request.options.policy.companion
            rows.append(SequenceRows(tokens, start, request.pages, want_logits=int(ready), policy=policy))
            fed.append((request, stop))
            if ready:
                drafting.append(place)
        if rows:
            self._draft(rows, drafting, chains)
        for request, stop in fed:
            request.cache.drafts = request.cache.drafts._replace(model=stop)
        return drafting

    def _draft(self, rows: list[SequenceRows], places: Sequence[int], chains: Chains) -> None:
        """Run one pass and extend the chains of ``places``, whose logits come in this order."""
        began = time.perf_counter()
        logits = self._runner.forward(rows).logits
        if places:
            chains.extend(places, _fit(logits, self._vocabulary))
        tokens = sum(row.start + len(row.tokens) for row in rows)
        seconds = time.perf_counter() - began - self._runner.batch_seconds
        self._count(seconds, self._weight_bytes + int(self._kv_bytes * tokens))


def _fit(logits: Tensor, vocabulary: int) -> Tensor:
    """Pad or cut logits to the target's vocabulary: the padding of embeddings differs between sizes of a family."""
    missing = vocabulary - logits.shape[1]
    if missing > 0:
        return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf)
    return logits[:, :vocabulary]
