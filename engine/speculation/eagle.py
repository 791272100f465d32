"""Guesses from a head on the target's own hidden states: EAGLE 1 to 3, and multi-token-prediction layers.

Every row that the target computes gives the head an entry (`engine.models.heads.base`); from the last one it goes on
with its own outputs. All requests of a step share each pass: one that reads what their arenas lack, then one for each
further depth. What is read of guesses lies behind the entries, within the pages that the budget has room for, and is
written over with entries of real features once the target has computed those rows (section 3.2 of arXiv 2401.15077).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor

from engine.core.batch import ForwardOutput
from engine.core.request import Request
from engine.core.runner import SequenceRows
from engine.models.heads.base import OUTPUT
from engine.speculation.base import NO_GUESS, Ask, DraftTree, Seen, Work
from engine.speculation.drawing import children, draw_next
from engine.speculation.growing import Chain, Tree, draw_of
from engine.speculation.head_texts import HeadText

BREADTH = 10
"""Guesses of one depth that get children (EAGLE-2's top-k)."""
DEPTH = 7
"""How deep trees grow at most where nobody says otherwise (EAGLE-2 grows 6 to 8)."""
MOST_ROWS = 2048


class Head(Protocol):
    """What is needed of :class:`engine.models.heads.base.FeatureHead`."""

    @property
    def name(self) -> str: ...

    reads: tuple[int, ...]

    def features(self, hidden: Mapping[int, Tensor]) -> Tensor: ...

    def logits(self, outputs: Tensor) -> Tensor: ...

    def bytes_read_per_step(self) -> int: ...

    def kv_bytes_per_token(self) -> int: ...


class HeadRunner(Protocol):
    """What is needed of a :class:`engine.core.runner.Runner` whose model is the head."""

    batch_seconds: float

    def forward(
        self, rows: Sequence[SequenceRows], *, hidden_in: Tensor | None, want_hidden: frozenset[int]
    ) -> ForwardOutput: ...


class FeatureProposer:
    """Proposes dynamic trees, or chains where there is a guess for every depth or guesses are tested by ratio."""

    branches = True

    def __init__(
        self,
        head: Head,
        runner: HeadRunner,
        eos_ids: Collection[int],
        breadth: int = BREADTH,
        depth: int = DEPTH,
        max_rows: int = MOST_ROWS,
    ) -> None:
        """``max_rows`` bounds what one pass reads of texts that the arena lags behind on."""
        self.name = head.name
        self.needs_hidden = frozenset(head.reads)
        self._head, self._runner, self._eos_ids = head, runner, frozenset(eos_ids)
        self._breadth, self._depth, self._max_rows = breadth, depth, max_rows
        self._texts: dict[tuple[str, int], HeadText] = {}
        self._seconds, self._passes, self._bytes = 0.0, 0, 0

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """See :meth:`engine.speculation.base.Proposer.propose`."""
        with torch.inference_mode():
            growths = self._catch_up(asks)
            active = [growth for growth in growths if growth is not None]
            while active:
                self._choose(active)
                active = [growth for growth in active if growth.leaves]
                if active:
                    self._read(active)
        return [NO_GUESS if growth is None else growth.tree(self.name) for growth in growths]

    def see(self, seen: Sequence[Seen]) -> None:
        """Keep the features of the rows until the next pass reads them; made here, where EAGLE-3 joins three states."""
        if not seen:
            return
        with self._timed(), torch.inference_mode():
            joined = {layer: torch.cat([each.hidden[layer] for each in seen]) for layer in self._head.reads}
            counts = [each.hidden[self._head.reads[0]].shape[0] for each in seen]
            pieces = self._head.features(joined).split(counts)
        for (request, start, _), features in zip(seen, pieces, strict=True):
            # Copied, because what waits for one request would keep the rows of all alive.
            mine = features if len(pieces) == 1 else features.clone()
            self._text(request).add(start, mine, 4 * self._max_rows)

    def observe(self, request: Request, tree: DraftTree, nodes: Sequence[int]) -> None:
        """Nothing to keep: accepted guesses are read again, with the target's features (`see`)."""

    def release(self, request: Request) -> None:
        self._texts.pop(request.owner, None)

    def take_work(self) -> Work:
        work = Work(self._seconds, self._passes, self._bytes)
        self._seconds, self._passes, self._bytes = 0.0, 0, 0
        return work

    # --- passes --------------------------------------------------------------------------------------------------

    def _catch_up(self, asks: Sequence[Ask]) -> list[Chain | Tree | None]:
        """Read the features that wait, of all asks; begin to guess where the whole text is read then."""
        texts = [self._text(ask.request) for ask in asks]
        reading: list[tuple[HeadText, int]] = []
        rows: list[SequenceRows] = []
        left = self._max_rows
        for text in texts:
            request = text.request
            text.settle(request.num_computed)
            other = self._texts.get(request.fork_of.owner) if request.fork_of is not None else None
            if other is not None:
                text.share(other)
            count = min(text.waiting, left)
            if count:
                left -= count
                # The tokens that came after the rows.
                tokens = request.tokens[text.held + 1 : text.held + 1 + count]
                rows.append(SequenceRows(tokens, text.held, request.pages, policy=text.policy))
                reading.append((text, count))
        if reading:
            outputs = self._pass(rows, torch.cat([text.next(count) for text, count in reading]))
            end = 0
            for text, count in reading:
                end += count
                # A copy, because a row of a step would keep all of its rows alive.
                text.read(count, outputs[end - 1].clone())
        return [self._begin(ask, text) for ask, text in zip(asks, texts, strict=True)]

    def _begin(self, ask: Ask, text: HeadText) -> Chain | Tree | None:
        """What is to grow; None where nothing is asked for, or the last known token's entry is not there."""
        request, budget, _, most = ask
        if budget < 1 or most < 1 or text.output is None or text.waiting or text.held != request.known - 1:
            return None
        ends = frozenset() if request.params.ignore_eos else self._eos_ids
        deepest = min(most, request.options.draft_length or self._depth)
        if request.acceptance == "ratio":
            return Chain(text, min(budget, deepest), text.output, ends)
        if budget == most:
            return Chain(text, budget, text.output, ends)
        return Tree(text, budget, deepest, self._breadth, text.output, ends)

    def _choose(self, growths: Sequence[Chain | Tree]) -> None:
        """Choose what follows all leaves: one call of the output layer, and one of each way of choosing."""
        chains = [growth for growth in growths if isinstance(growth, Chain)]
        trees = [growth for growth in growths if isinstance(growth, Tree)]
        ordered: list[Chain | Tree] = [*chains, *trees]
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

    def _read(self, growths: Sequence[Chain | Tree]) -> None:
        """One pass over what all of them have to read next."""
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
        self._seconds -= self._runner.batch_seconds
        self._passes += 1
        keys = sum(row.start + len(row.tokens) for row in rows)
        self._bytes += self._head.bytes_read_per_step() + keys * self._head.kv_bytes_per_token()
        return outputs

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds += time.perf_counter() - began

    def _text(self, request: Request) -> HeadText:
        text = self._texts.get(request.owner)
        if text is None:
            text = self._texts[request.owner] = HeadText(request, preemptions=request.preemptions)
        return text
