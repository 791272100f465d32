"""Self-speculation: the target drafts with some of its layers left out, over its own keys and values.

Early exit and layer skipping both read the committed keys and values of a request and write the rows of the last known
token and of the draft tokens into the slots after them. The request's length says which slots are valid, every row
writes its own slot before it reads, and no row reads beyond itself. So what a rejected draft wrote is overwritten
before anything reads it, whatever the kind of cache. The key bounds of pages are computed again with each write. A
group of tokens is packed only when 64 or more tokens follow it, and no chain is that long: the group holds committed
tokens only, and packing it again gives the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from engine.compute.batch import SequenceRows
from engine.compute.models.base import CausalLM
from engine.compute.runner.runner import Runner
from engine.decoding.request import Request
from engine.decoding.speculation.base import DraftRequest, DraftTree, Proposer
from engine.decoding.speculation.proposers.chains import Chains
from engine.decoding.speculation.proposers.layer_choice import LayerChoice
from engine.decoding.speculation.technique import Made, ProposerInputs

LEAST_LAYERS = 4
"""Models with fewer layers get no early exit and no layer skipping."""


def drafts_alone(model: CausalLM) -> bool:
    """Return True if some of the model's layers draft: there are enough, and none carries a state that drafts would
    move on."""
    return model.num_layers >= LEAST_LAYERS and model.config.recurrent is None


def early_exit(target: ProposerInputs) -> Made | None:
    model, runner, eos_ids, layers, kept = target
    if not drafts_alone(model):
        return None
    proposer = EarlyExitProposer(runner, model, eos_ids, kept, layers.exit_layer)
    return Made(proposer, f"after {layers.exit_layer} of {model.num_layers} layers{_how(layers)}")


def layer_skipping(target: ProposerInputs) -> Made | None:
    model, runner, eos_ids, layers, kept = target
    if not drafts_alone(model):
        return None
    # What a layer writes that others read is never left out.
    proposer = LayerSkipProposer(runner, model, eos_ids, kept, layers.skip - set(model.config.attention.lenders))
    skipped = ", ".join(str(layer + 1) for layer in sorted(layers.skip)) or "none"
    return Made(proposer, f"without layers {skipped} of {model.num_layers}{_how(layers)}")


def _how(layers: LayerChoice) -> str:
    return " (by default: no search was made)" if layers.notice else ""


class SelfDrafting(Proposer):
    """The base of early exit and layer skipping: chains of all requests of a step, one ragged batch per depth.

    Only a request whose tokens are all in the cache except the last gets a draft; requests without a cache get none.
    No state is kept per request, so there is nothing to observe or to release.
    """

    def __init__(self, runner: Runner, weights: CausalLM, eos_ids: Collection[int], kv_bytes_per_token: float) -> None:
        """``runner`` and ``weights`` are the target's, ``kv_bytes_per_token`` is that of all its layers."""
        self._runner, self._weights, self._eos_ids = runner, weights, frozenset(eos_ids)
        self._kv_bytes = kv_bytes_per_token

    def _begin(self, asks: Sequence[DraftRequest]) -> tuple[Chains, list[int]]:
        chains = Chains(asks, self._eos_ids)
        able = [place for place, ask in enumerate(asks) if ask.request.cached and ask.request.pending == 1]
        return chains, chains.growing(able)

    @staticmethod
    def _rows(chains: Chains, asks: Sequence[DraftRequest], places: Sequence[int]) -> list[SequenceRows]:
        """Next rows of the chains, for the target with each request's adapter."""
        found = zip(chains.rows(places), places, strict=True)
        return [row._replace(adapter=asks[place].request.adapter) for row, place in found]

    def _spent(self, began: float, rows: Sequence[SequenceRows], skip: frozenset[int]) -> None:
        """Count one pass over ``rows`` that began at time ``began`` and left out the layers in ``skip``."""
        tokens = sum(row.start + len(row.tokens) for row in rows)
        share = 1 - len(skip) / self._runner.num_layers
        seconds = time.perf_counter() - began - self._runner.batch_seconds
        self._count(seconds, self._weights.bytes_read_per_step(skip) + int(share * self._kv_bytes * tokens))


class EarlyExitProposer(SelfDrafting):
    """Drafts with the first layers, the final norm and the head (Elhoushi et al. 2024, LayerSkip, arXiv 2404.16710).

    For the last known token and all draft tokens except the last, the keys and values written here are the target's
    own. With the residual streams after these layers (`DraftTree.early`) the target need not run them again.
    """

    name = "exit"

    def __init__(
        self,
        runner: Runner,
        weights: CausalLM,
        eos_ids: Collection[int],
        kv_bytes_per_token: float,
        exit_layer: int,
    ) -> None:
        """``exit_layer``: the number of layers that draft where a request does not set it."""
        super().__init__(runner, weights, eos_ids, kv_bytes_per_token)
        self._exit_layer = exit_layer

    def exit_of(self, request: Request) -> int:
        """The number of layers that draft for the request: at least one, never all."""
        wished = request.options.exit_layer or self._exit_layer
        return max(1, min(wished, self._runner.num_layers - 1))

    def propose(self, asks: Sequence[DraftRequest]) -> list[DraftTree]:
        """Implements :meth:`engine.decoding.speculation.base.Proposer.propose`.

        Each request's draft tokens are drawn after its own exit layer. The layers up to the highest exit run for all
        requests, so that all early states of a step are those after the same layer.
        """
        chains, places = self._begin(asks)
        exits = {place: self.exit_of(asks[place].request) for place in places}
        last = max(exits.values(), default=0)
        skip = frozenset(range(last, self._runner.num_layers))
        early: dict[int, list[Tensor]] = {place: [] for place in places}
        while places:
            began = time.perf_counter()
            rows = [row._replace(want_logits=0) for row in self._rows(chains, asks, places)]
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
    """Drafts with all layers except some in the middle (Zhang et al. 2024, Draft & Verify, arXiv 2309.08168).

    After a skipped layer the hidden states differ from the target's, so the keys and values written here are scratch:
    the target computes the rows of the last known token and of all draft tokens again, in all layers.
    """

    name = "skip"

    def __init__(
        self,
        runner: Runner,
        weights: CausalLM,
        eos_ids: Collection[int],
        kv_bytes_per_token: float,
        skip: frozenset[int],
    ) -> None:
        """``skip``: the layers that are left out."""
        super().__init__(runner, weights, eos_ids, kv_bytes_per_token)
        self._skip = skip

    def propose(self, asks: Sequence[DraftRequest]) -> list[DraftTree]:
        """Implements :meth:`engine.decoding.speculation.base.Proposer.propose`."""
        chains, places = self._begin(asks)
        while places:
            began = time.perf_counter()
            rows = self._rows(chains, asks, places)
            chains.extend(places, self._runner.forward(rows, skip=self._skip).logits)
            self._spent(began, rows, self._skip)
            places = chains.growing(places)
        return [chains.tree(place, self.name) for place in range(len(asks))]
