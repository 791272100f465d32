"""Guesses from the target itself, some of its layers left out, over its own keys and values.

Both read what is committed of a request and write the rows of the last known token and of the guesses into the slots
after it. A request's length says which slots count, every row writes its own slot before it reads, and no row reads
beyond itself: so what a rejected round wrote is overwritten before anything reads it, whatever kind of cache it is in.
Bounds of pages are computed again with each write. A group of tokens is packed only when 64 or more follow it, and no
chain is as long as that: it holds committed tokens alone, and packing it again gives the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Protocol

import torch
from torch import Tensor

from engine.core.forwarding import TargetRunner
from engine.core.request import Request
from engine.core.runner import SequenceRows
from engine.speculation.base import Ask, DraftTree, Seen, Work
from engine.speculation.chains import Chains


class DraftingRunner(TargetRunner, Protocol):
    """What is needed of the target's :class:`engine.core.runner.Runner` besides."""

    def logits(self, hidden: Tensor) -> Tensor:
        """See :meth:`engine.core.runner.Runner.logits`."""


class Weights(Protocol):
    """What is needed of :class:`engine.models.base.CausalLM`."""

    def bytes_read_per_step(self, skip: frozenset[int] = frozenset()) -> int:
        """Bytes of weights that one row's pass reads, without the layers in ``skip``."""


class SelfDrafting:
    """What early exit and layer skipping share: chains of all requests of a step, one ragged batch per depth.

    Only a request whose tokens but the last are all in the cache can be guessed for: others get no guess, as do those
    without a cache. Nothing is kept of a request, so there is nothing to learn and to forget.
    """

    name = ""
    needs_hidden: frozenset[int] = frozenset()
    branches = False

    def __init__(
        self, runner: DraftingRunner, weights: Weights, eos_ids: Collection[int], kv_bytes_per_token: float
    ) -> None:
        """``runner`` and ``weights`` are the target's, ``kv_bytes_per_token`` is that of all its layers."""
        self._runner, self._weights, self._eos_ids = runner, weights, frozenset(eos_ids)
        self._kv_bytes = kv_bytes_per_token
        self._work = Work()

    def observe(self, request: Request, tree: DraftTree, nodes: Sequence[int]) -> None:
        """Nothing to learn: what was written is the target's, or is written again."""

    def see(self, seen: Sequence[Seen]) -> None:
        """It needs no states."""

    def release(self, request: Request) -> None:
        """Nothing is kept."""

    def take_work(self) -> Work:
        work, self._work = self._work, Work()
        return work

    def _begin(self, asks: Sequence[Ask]) -> tuple[Chains, list[int]]:
        chains = Chains(asks, self._eos_ids)
        able = [place for place, ask in enumerate(asks) if ask.request.cached and ask.request.pending == 1]
        return chains, chains.growing(able)

    def _spent(self, began: float, rows: Sequence[SequenceRows], skip: frozenset[int]) -> None:
        """Count one pass over ``rows`` that began at that time and left layers out."""
        tokens = sum(row.start + len(row.tokens) for row in rows)
        share = 1 - len(skip) / self._runner.num_layers
        self._work = Work(
            self._work.seconds + time.perf_counter() - began - self._runner.batch_seconds,
            self._work.passes + 1,
            self._work.bytes_read + self._weights.bytes_read_per_step(skip) + int(share * self._kv_bytes * tokens),
        )


class EarlyExitProposer(SelfDrafting):
    """The first layers, then the final norm and the head (Elhoushi et al. 2024, LayerSkip, arXiv 2404.16710).

    Keys and values of those layers are the target's own for every row that was read here, the last known token and all
    guesses but the last. With the streams that left them (`DraftTree.early`) the target need not run them again.
    """

    name = "exit"

    def __init__(
        self,
        runner: DraftingRunner,
        weights: Weights,
        eos_ids: Collection[int],
        kv_bytes_per_token: float,
        exit_layer: int,
    ) -> None:
        """``exit_layer`` layers guess where a request does not say how many."""
        super().__init__(runner, weights, eos_ids, kv_bytes_per_token)
        self._exit_layer = exit_layer

    def exit_of(self, request: Request) -> int:
        """After how many layers the request's guesses leave the model: at least one, never all."""
        wished = request.options.exit_layer or self._exit_layer
        return max(1, min(wished, self._runner.num_layers - 1))

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """See :meth:`engine.speculation.base.Proposer.propose`.

        Each request's guesses leave the model where it says. The layers that run are those of the longest way, so that
        all states of a step are of one layer.
        """
        chains, places = self._begin(asks)
        exits = {place: self.exit_of(asks[place].request) for place in places}
        last = max(exits.values(), default=0)
        skip = frozenset(range(last, self._runner.num_layers))
        early: dict[int, list[Tensor]] = {place: [] for place in places}
        while places:
            began = time.perf_counter()
            rows = [row._replace(want_logits=0) for row in chains.rows(places)]
            ways = [exits[place] for place in places]
            hidden = self._runner.forward(rows, layers=(0, last), want_hidden=frozenset(ways)).hidden
            leaving = hidden[last]
            for row, place in enumerate(places):
                early[place].append(leaving[row])
            if min(ways) < last:
                leaving = torch.stack([hidden[way][row] for row, way in enumerate(ways)])
            chains.extend(places, self._runner.logits(leaving))
            self._spent(began, rows, skip)
            places = chains.growing(places)
        return [self._tree(chains, place, early.get(place), last) for place in range(len(asks))]

    def _tree(self, chains: Chains, place: int, early: list[Tensor] | None, exit_layer: int) -> DraftTree:
        tree = chains.tree(place, self.name)
        return tree._replace(early=torch.stack(early), exit_layer=exit_layer) if early else tree


class LayerSkipProposer(SelfDrafting):
    """All layers but some in the middle (Zhang et al. 2024, Draft & Verify, arXiv 2309.08168).

    After a skipped layer the others read another stream than the target's, so their keys and values here are scratch:
    the target computes the rows of the last known token and of all guesses again, in all layers.
    """

    name = "skip"

    def __init__(
        self,
        runner: DraftingRunner,
        weights: Weights,
        eos_ids: Collection[int],
        kv_bytes_per_token: float,
        skip: frozenset[int],
    ) -> None:
        """``skip``: the layers that are left out."""
        super().__init__(runner, weights, eos_ids, kv_bytes_per_token)
        self._skip = skip

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """See :meth:`engine.speculation.base.Proposer.propose`."""
        chains, places = self._begin(asks)
        while places:
            began = time.perf_counter()
            rows = chains.rows(places)
            chains.extend(places, self._runner.forward(rows, skip=self._skip).logits)
            self._spent(began, rows, self._skip)
            places = chains.growing(places)
        return [chains.tree(place, self.name) for place in range(len(asks))]
