"""Guesses from Medusa heads: each predicts a further token from the state that drew the last one (arXiv 2401.10774).

All heads look at the same state, so one pass gives the choices for every depth, and a tree combines them. Its shape
follows how often each head's first, second, ... choice was right lately, in this request and in all of them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from engine.core.request import Request
from engine.sampling.params import SamplingParams
from engine.sampling.sampler import Draw
from engine.speculation.base import NO_GUESS, Ask, DraftTree, Seen, Work
from engine.speculation.drawing import children
from engine.speculation.head_accuracy import RANKS, HeadAccuracy, default_accuracies
from engine.speculation.trees import without_branches

_COMMON_FORGET, _COMMON_WEIGHT = 0.998, 50.0
_OWN_FORGET, _OWN_WEIGHT = 0.98, 16.0


class Heads(Protocol):
    """What is needed of :class:`engine.models.heads.medusa.MedusaHeads`."""

    num_heads: int

    def normed(self, stream: Tensor) -> Tensor:
        """``stream [S, hidden_size]`` -> the states that the heads read."""

    def forward(self, hidden: Tensor, heads: int) -> Tensor:
        """``hidden [S, hidden_size]`` -> logits of the first heads [heads, S, V]."""

    def bytes_read(self, heads: int) -> int:
        """Bytes of weights that a pass of the first heads reads."""


class _State(NamedTuple):
    """The stream [hidden_size] of the row that drew token ``drawn`` of its request."""

    hidden: Tensor
    drawn: int
    preemptions: int


class _Guess(NamedTuple):
    """``choices[head]``, best first, for the tokens of a request from ``start`` on."""

    start: int
    choices: list[list[int]]


class MedusaProposer:
    """Proposes trees, all requests of a step in one pass. Its guesses are certain choices (``q`` None)."""

    name = "medusa"
    branches = True
    last_row_only = True

    def __init__(
        self,
        heads: Heads,
        num_layers: int,
        accuracies: Sequence[Sequence[float]] | None,
        eos_ids: Collection[int],
    ) -> None:
        """``num_layers`` is the target's. ``accuracies`` [head][rank] are believed until guesses were seen; None: those
        of :func:`engine.speculation.head_accuracy.default_accuracies`."""
        believed = default_accuracies(heads.num_heads) if accuracies is None else accuracies
        believed = [row[:RANKS] for row in believed[: heads.num_heads]]
        self.needs_hidden = frozenset({num_layers})
        self.deepest = heads.num_heads
        self._heads, self._layer = heads, num_layers
        self._eos_ids = frozenset(eos_ids)
        self._ranks = [len(row) for row in believed]
        self._common = HeadAccuracy(believed, _COMMON_FORGET, _COMMON_WEIGHT)
        self._own: dict[tuple[str, int], HeadAccuracy] = {}
        self._states: dict[tuple[str, int], _State] = {}
        self._guesses: dict[tuple[str, int], _Guess] = {}
        self._work = Work()

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """See :meth:`engine.speculation.base.Proposer.propose`."""
        trees = [NO_GUESS] * len(asks)
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
        # One head more than the trees need: only its guesses can show that deeper trees would pay.
        choices = self._choose([ask.request for ask in mine], min(len(self._ranks), deepest + 1))
        for place, shape, ask, choice in zip(places, shapes, mine, choices, strict=True):
            self._guesses[ask.request.owner] = _Guess(len(ask.request.tokens), choice)
            trees[place] = self._tree(ask, shape, choice)
        return trees

    def see(self, seen: Sequence[Seen]) -> None:
        """Learn which choices were right, and keep the state that drew each request's last token."""
        fresh: list[tuple[Request, Tensor]] = []
        for request, start, hidden in seen:
            self._learn(request)
            stream = hidden[self._layer]
            if start + stream.shape[0] == len(request.tokens) - 1:
                fresh.append((request, stream[-1]))
            else:
                self._states.pop(request.owner, None)
        if not fresh:
            return
        # Copied, because rows of a step would keep all of its states alive.
        kept = torch.stack([row for _, row in fresh])
        for (request, _), row in zip(fresh, kept, strict=True):
            self._states[request.owner] = _State(row, len(request.tokens) - 1, request.preemptions)

    def observe(self, request: Request, tree: DraftTree, nodes: Sequence[int]) -> None:
        """Nothing yet: what was right is read off the request's tokens, the first wrong guess included (`see`)."""

    def release(self, request: Request) -> None:
        for kept in (self._states, self._guesses, self._own):
            kept.pop(request.owner, None)

    def take_work(self) -> Work:
        work, self._work = self._work, Work()
        return work

    # --- guessing ------------------------------------------------------------------------------------------------

    def _ready(self, ask: Ask) -> bool:
        """Whether something is to be guessed and the state for it is there; a state that is too old is dropped."""
        request = ask.request
        state = self._states.get(request.owner)
        if state is None:
            return False
        if state.drawn != len(request.tokens) - 1 or state.preemptions != request.preemptions:
            del self._states[request.owner]
            return False
        return ask.budget > 0 and ask.depth > 0

    def _shape(self, ask: Ask) -> list[tuple[int, ...]]:
        owner = ask.request.owner
        if owner not in self._own:
            self._own[owner] = HeadAccuracy(self._common.shares, _OWN_FORGET, _OWN_WEIGHT)
        return self._own[owner].tree(min(ask.depth, ask.budget, len(self._ranks)))

    def _choose(self, requests: Sequence[Request], heads: int) -> list[list[list[int]]]:
        """For each request, the choices of each of the first ``heads``, best first: one pass for all."""
        began = time.perf_counter()
        stream = torch.stack([self._states[request.owner].hidden for request in requests])
        logits = self._heads.forward(self._heads.normed(stream), heads)
        paths = _likely_paths(logits, requests)
        orders = [_order(request) for request in requests]
        draws = [
            Draw(order, request.answer, request.tokens, path[:head], request.history)
            for head in range(heads)
            for request, path, order in zip(requests, paths, orders, strict=True)
        ]
        counts = [count for count in self._ranks[:heads] for _ in requests]
        rows = children(logits.flatten(0, 1), draws, counts)
        self._work = Work(
            self._work.seconds + time.perf_counter() - began,
            self._work.passes + 1,
            self._work.bytes_read + self._heads.bytes_read(heads),
        )
        return [
            [[token for token, _ in rows[head * len(requests) + place]] for head in range(heads)]
            for place in range(len(requests))
        ]

    def _tree(self, ask: Ask, shape: Sequence[tuple[int, ...]], choices: Sequence[Sequence[int]]) -> DraftTree:
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
            return NO_GUESS
        return DraftTree(tuple(tokens), without_branches(tuple(parents)), proposer=self.name)

    # --- learning ------------------------------------------------------------------------------------------------

    def _learn(self, request: Request) -> None:
        guess = self._guesses.pop(request.owner, None)
        if guess is None:
            return
        ranks: list[int | None] = []
        for choices, token in zip(guess.choices, request.tokens[guess.start :], strict=False):
            ranks.append(choices.index(token) if token in choices else None)
            if ranks[-1] is None:
                break
        if ranks:
            self._own[request.owner].observe(ranks)
            self._common.observe(ranks)


def _order(request: Request) -> SamplingParams:
    """The settings by which choices are put in order.

    The ratio test keeps a certain guess as often as the target's probabilities say, whatever the noise: there the
    likeliest ones are best. Elsewhere it is the token that the noise will choose.
    """
    return replace(request.params, temperature=0.0) if request.acceptance == "ratio" else request.params


def _likely_paths(logits: Tensor, requests: Sequence[Request]) -> list[list[int]]:
    """For each request the tokens before each head's, of which a draw counts the number, and penalties the kinds.

    Penalties would differ from path to path, and the choices of a head are the same for all: they are taken as after
    each head's likeliest token. ``logits`` [heads, S, V].
    """
    if all(request.params.plain for request in requests):
        return [[0] * logits.shape[0]] * len(requests)
    paths: list[list[int]] = logits.argmax(-1).t().tolist()
    return paths
