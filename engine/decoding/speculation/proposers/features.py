"""Draft tokens from a head on the target's own hidden states: trained ones, and multi-token-prediction layers.

Every row that the target computes gives the head an entry (`engine.compute.models.heads.base`); after the last entry
the head continues from its own outputs. All requests of a step share each pass: one that reads the entries their arenas
lack, then one for each further depth. The keys and values of draft tokens are written after the entries, within the
pages that the budget has room for. They are overwritten with entries of real features once the target has computed
those rows (section 3.2 of arXiv 2401.15077).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import torch
from torch import Tensor

from engine.compute.batch import SequenceRows
from engine.compute.models.heads.base import OUTPUT, FeatureHead
from engine.compute.runner.runner import Runner
from engine.decoding.request import Request
from engine.decoding.speculation.base import NO_DRAFT, DraftRequest, DraftTree, HiddenRows, Proposer
from engine.decoding.speculation.proposers.drawing import children, draw_next
from engine.decoding.speculation.proposers.growing import GrowingChain, GrowingTree, draw_of
from engine.decoding.speculation.proposers.head_texts import HeadText

BREADTH = 10
"""Draft tokens of one depth that get children (the top-k of arXiv 2406.16858)."""
DEPTH = 7
"""The default maximum depth of trees (6 to 8 in arXiv 2406.16858)."""
MOST_ROWS = 2048


class FeatureProposer(Proposer):
    """Proposes dynamic trees; chains where the budget equals the allowed depth and for the ratio test."""

    branches = True

    def __init__(
        self,
        head: FeatureHead,
        runner: Runner,
        eos_ids: Collection[int],
        breadth: int = BREADTH,
        depth: int = DEPTH,
        max_rows: int = MOST_ROWS,
    ) -> None:
        """``max_rows`` limits the rows of one catch-up pass over entries that the arena does not hold yet."""
        self.name = head.name
        self.needs_hidden = frozenset(head.reads)
        self._head, self._runner, self._eos_ids = head, runner, frozenset(eos_ids)
        self._breadth, self._depth, self._max_rows = breadth, depth, max_rows
        self._texts: dict[tuple[str, int], HeadText] = {}

    def propose(self, asks: Sequence[DraftRequest]) -> list[DraftTree]:
        """Implements :meth:`engine.decoding.speculation.base.Proposer.propose`."""
        with torch.inference_mode():
            growths = self._catch_up(asks)
            active = [growth for growth in growths if growth is not None]
            while active:
                self._choose(active)
                active = [growth for growth in active if growth.leaves]
                if active:
                    self._read(active)
        return [NO_DRAFT if growth is None else growth.tree(self.name) for growth in growths]

    def see(self, seen: Sequence[HiddenRows]) -> None:
        """Compute the features of the rows (some join several states) and keep them for the next pass."""
        if not seen:
            return
        with self._timed(), torch.inference_mode():
            joined = {layer: torch.cat([each.hidden[layer] for each in seen]) for layer in self._head.reads}
            counts = [each.hidden[self._head.reads[0]].shape[0] for each in seen]
            pieces = self._head.features(joined).split(counts)
        for (request, start, _), features in zip(seen, pieces, strict=True):
            # Copied, because a view for one request would keep the rows of all requests alive.
            mine = features if len(pieces) == 1 else features.clone()
            self._text(request).add(start, mine, 4 * self._max_rows)

    def release(self, request: Request) -> None:
        self._texts.pop(request.owner, None)

    # --- passes --------------------------------------------------------------------------------------------------

    def _catch_up(self, asks: Sequence[DraftRequest]) -> list[GrowingChain | GrowingTree | None]:
        """Read the waiting features of all asks; start drafting for those whose whole text has been read then."""
        texts = [self._text(ask.request) for ask in asks]
        reading: list[tuple[HeadText, int]] = []
        rows: list[SequenceRows] = []
        left = self._max_rows
        for text in texts:
            request = text.request
            text.settle(request.num_computed)
            fork_of = request.cache.fork_of
            other = self._texts.get(fork_of.owner) if fork_of is not None else None
            if other is not None:
                text.share(other)
            count = min(text.waiting, left)
            if count:
                left -= count
                # The tokens that follow the rows: entry i holds the features of token i and token i + 1.
                tokens = request.tokens[text.held + 1 : text.held + 1 + count]
                rows.append(SequenceRows(tokens, text.held, request.pages, policy=text.policy))
                reading.append((text, count))
        if reading:
            outputs = self._pass(rows, torch.cat([text.next(count) for text, count in reading]))
            end = 0
            for text, count in reading:
                end += count
                # Cloned, because a view of one row would keep all rows of the step alive.
                text.read(count, outputs[end - 1].clone())
        return [self._begin(ask, text) for ask, text in zip(asks, texts, strict=True)]

    def _begin(self, ask: DraftRequest, text: HeadText) -> GrowingChain | GrowingTree | None:
        """The chain or tree to grow; None where nothing is asked for or the last known token's entry is missing."""
        request, budget, _, most = ask
        if budget < 1 or most < 1 or text.output is None or text.waiting or text.held != request.known - 1:
            return None
        ends = frozenset() if request.params.ignore_eos else self._eos_ids
        deepest = min(most, request.options.draft_length or self._depth)
        if request.acceptance == "ratio":
            return GrowingChain(text, min(budget, deepest), text.output, ends)
        if budget == most:
            return GrowingChain(text, budget, text.output, ends)
        return GrowingTree(text, budget, deepest, self._breadth, text.output, ends)

    def _choose(self, growths: Sequence[GrowingChain | GrowingTree]) -> None:
        """Choose the children of all leaves: one call of the output layer, then one draw for chains, one for trees."""
        chains = [growth for growth in growths if isinstance(growth, GrowingChain)]
        trees = [growth for growth in growths if isinstance(growth, GrowingTree)]
        ordered: list[GrowingChain | GrowingTree] = [*chains, *trees]
        with self._timed():
            outputs = torch.stack([output for growth in ordered for output in growth.outputs])
            logits = self._head.logits(outputs)
            draws = [draw_of(growth.request, path) for growth in ordered for path in growth.leaves]
            count = len(chains)
            if chains:
                modes = [chain.request.acceptance for chain in chains]
                tokens, shares = draw_next(logits[:count], draws[:count], modes)
                for row, (chain, token, mode) in enumerate(zip(chains, tokens, modes, strict=True)):
                    chain.add(token, shares[row] if shares is not None and mode == "ratio" else None)
            if trees:
                counts = [tree.breadth for tree in trees for _ in tree.leaves]
                found = iter(children(logits[count:], draws[count:], counts))
                for tree in trees:
                    tree.add(list(islice(found, len(tree.leaves))))

    def _read(self, growths: Sequence[GrowingChain | GrowingTree]) -> None:
        """Run one pass over the rows that all chains and trees have to read next."""
        readings = [growth.reading() for growth in growths]
        outputs = self._pass([reading.rows for reading in readings], torch.cat([each.states for each in readings]))
        end = 0
        for growth, reading in zip(growths, readings, strict=True):
            end += reading.states.shape[0]
            growth.read(outputs[end - reading.fresh : end])

    def _pass(self, rows: Sequence[SequenceRows], states: Tensor) -> Tensor:
        """The head's outputs ``[T, hidden_size]`` for all rows."""
        with self._timed():
            outputs = self._runner.forward(rows, hidden_in=states, want_hidden=frozenset({OUTPUT})).hidden[OUTPUT]
        keys = sum(row.start + len(row.tokens) for row in rows)
        bytes_read = self._head.bytes_read_per_step() + keys * self._head.kv_bytes_per_token()
        self._count(-self._runner.batch_seconds, bytes_read)
        return outputs

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self._count(time.perf_counter() - began, passes=0)

    def _text(self, request: Request) -> HeadText:
        text = self._texts.get(request.owner)
        if text is None:
            text = self._texts[request.owner] = HeadText(request, preemptions=request.standing.preemptions)
        return text
