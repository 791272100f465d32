"""Draft tokens from Medusa heads: each head predicts one position further ahead from one state (arXiv 2401.10774).

All heads read the state that drew the last token, so one pass gives the choices for every depth, and a tree combines
them. Its shape follows how often each head's first, second, ... choice was right lately, in this request and in all.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from engine.compute.sampling.params import SamplingParams
from engine.compute.sampling.sampler import Draw
from engine.decoding.request import Request
from engine.decoding.speculation.base import NO_DRAFT, DraftRequest, DraftTree, HiddenRows, Proposer
from engine.decoding.speculation.medusa.accuracy import RANKS, HeadAccuracy, default_accuracies
from engine.decoding.speculation.medusa.heads import MedusaHeads
from engine.decoding.speculation.proposers.drawing import children
from engine.decoding.speculation.proposers.last_rows import LastRows
from engine.decoding.speculation.proposers.trees import without_branches

_COMMON_FORGET, _COMMON_WEIGHT = 0.998, 50.0
_OWN_FORGET, _OWN_WEIGHT = 0.98, 16.0


class _Draft(NamedTuple):
    """``choices[head]``, best first, for the tokens of a request from ``start`` on."""

    start: int
    choices: list[list[int]]


class MedusaProposer(Proposer):
    """Proposes trees, all requests of a step in one pass. Its draft tokens are chosen, not sampled (``q`` None)."""

    name = "medusa"
    branches = True
    last_row_only = True

    def __init__(
        self,
        heads: MedusaHeads,
        num_layers: int,
        accuracies: Sequence[Sequence[float]] | None,
        eos_ids: Collection[int],
    ) -> None:
        """``num_layers`` is the target's. ``accuracies`` [head][rank] are the initial estimates; None: those of
        :func:`engine.decoding.speculation.medusa.accuracy.default_accuracies`."""
        believed = default_accuracies(heads.num_heads) if accuracies is None else accuracies
        believed = [row[:RANKS] for row in believed[: heads.num_heads]]
        self.needs_hidden = frozenset({num_layers})
        self.max_depth = heads.num_heads
        self._heads, self._rows = heads, LastRows(num_layers)
        self._eos_ids = frozenset(eos_ids)
        self._ranks = [len(row) for row in believed]
        self._common = HeadAccuracy(believed, _COMMON_FORGET, _COMMON_WEIGHT)
        self._own: dict[tuple[str, int], HeadAccuracy] = {}
        self._drafts: dict[tuple[str, int], _Draft] = {}

    def propose(self, asks: Sequence[DraftRequest]) -> list[DraftTree]:
        """Implements :meth:`engine.decoding.speculation.base.Proposer.propose`."""
        trees = [NO_DRAFT] * len(asks)
        places: list[int] = []
        shapes: list[list[tuple[int, ...]]] = []
        for place, ask in enumerate(asks):
            shape = self._shape(ask) if self._ready(ask) else []
            if shape:
                places.append(place)
                shapes.append(shape)
        if not places:
            return trees
        mine = [asks[place] for place in places]
        deepest = max(len(path) for shape, ask in zip(shapes, mine, strict=True) for path in shape[: ask.budget])
        # One head more than the trees need: only its draft tokens can show that deeper trees would pay.
        choices = self._choose([ask.request for ask in mine], min(len(self._ranks), deepest + 1))
        for place, shape, ask, choice in zip(places, shapes, mine, choices, strict=True):
            self._drafts[ask.request.owner] = _Draft(len(ask.request.tokens), choice)
            trees[place] = self._tree(ask, shape, choice)
        return trees

    def see(self, seen: Sequence[HiddenRows]) -> None:
        """Learn which choices were right, and keep the state that drew each request's last token."""
        for each in seen:
            self._learn(each.request)
        self._rows.see(seen)

    def release(self, request: Request) -> None:
        self._rows.release(request)
        for kept in (self._drafts, self._own):
            kept.pop(request.owner, None)

    # --- drafting ------------------------------------------------------------------------------------------------

    def _ready(self, ask: DraftRequest) -> bool:
        """Return True if tokens are asked for and the state to draft from is there."""
        return self._rows.has(ask.request) and ask.budget > 0 and ask.depth > 0

    def _shape(self, ask: DraftRequest) -> list[tuple[int, ...]]:
        owner = ask.request.owner
        if owner not in self._own:
            self._own[owner] = HeadAccuracy(self._common.shares, _OWN_FORGET, _OWN_WEIGHT)
        return self._own[owner].tree(min(ask.depth, ask.budget, len(self._ranks)))

    def _choose(self, requests: Sequence[Request], heads: int) -> list[list[list[int]]]:
        """Choices of each of the first ``heads`` for each request, best first: one pass for all."""
        began = time.perf_counter()
        logits = self._heads.forward(self._heads.normed(self._rows.of(requests)), heads)
        paths = _likely_paths(logits, requests)
        orders = [_order(request) for request in requests]
        draws = [
            Draw(order, request.answer, request.tokens, path[:head], request.history)
            for head in range(heads)
            for request, path, order in zip(requests, paths, orders, strict=True)
        ]
        counts = [count for count in self._ranks[:heads] for _ in requests]
        rows = children(logits.flatten(0, 1), draws, counts)
        self._count(time.perf_counter() - began, self._heads.bytes_read(heads))
        return [
            [[token for token, _ in rows[head * len(requests) + place]] for head in range(heads)]
            for place in range(len(requests))
        ]

    def _tree(self, ask: DraftRequest, shape: Sequence[tuple[int, ...]], choices: Sequence[Sequence[int]]) -> DraftTree:
        """The first ``ask.budget`` nodes of the shape that there are choices for."""
        ends = frozenset() if ask.request.params.ignore_eos else self._eos_ids
        tokens: list[int] = []
        parents: list[int] = []
        node_of: dict[tuple[int, ...], int] = {(): -1}
        for path in shape:
            if len(tokens) == ask.budget:
                break
            head, rank, parent = len(path) - 1, path[-1], node_of.get(path[:-1])
            if parent is None or head >= len(choices) or rank >= len(choices[head]):
                continue
            if parent >= 0 and tokens[parent] in ends:
                continue
            node_of[path] = len(tokens)
            tokens.append(choices[head][rank])
            parents.append(parent)
        if not tokens:
            return NO_DRAFT
        return DraftTree(tuple(tokens), without_branches(tuple(parents)), proposer=self.name)

    # --- learning ------------------------------------------------------------------------------------------------

    def _learn(self, request: Request) -> None:
        draft = self._drafts.pop(request.owner, None)
        if draft is None:
            return
        ranks: list[int | None] = []
        for choices, token in zip(draft.choices, request.tokens[draft.start :], strict=False):
            ranks.append(choices.index(token) if token in choices else None)
            if ranks[-1] is None:
                break
        if ranks:
            self._own[request.owner].observe(ranks)
            self._common.observe(ranks)


def _order(request: Request) -> SamplingParams:
    """The sampling settings by which choices are put in order.

    The ratio test accepts a token that was not sampled with the target's own probability, whatever the noise: there the
    likeliest tokens are best. For the other tests the best token is the one that the target's noise selects.
    """
    return replace(request.params, temperature=0.0) if request.acceptance == "ratio" else request.params


def _likely_paths(logits: Tensor, requests: Sequence[Request]) -> list[list[int]]:
    """Assumed path of draft tokens for each request: a draw needs its length, and penalties need its tokens.

    Penalties would differ from path to path, while a head's choices are the same for all paths: they are computed for
    the path of each head's likeliest token. ``logits`` [heads, S, V].
    """
    if all(request.params.plain for request in requests):
        return [[0] * logits.shape[0]] * len(requests)
    paths: list[list[int]] = logits.argmax(-1).t().tolist()
    return paths
