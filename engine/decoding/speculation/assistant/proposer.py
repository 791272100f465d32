"""Draft tokens from Gemma 4's assistant (models/heads/assistant.py), which reads the target's keys and values.

It goes on from the state that drew the last token, and keeps nothing else: no keys of draft tokens, which it does not
see, and none of its own, so that prefix hits, preemption and rejected drafts leave nothing to catch up with. Its rows
read the cache as the target's row before the last known token did, by the request's page policy.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from engine.compute.models.heads.assistant import Assistant
from engine.compute.models.heads.base import OUTPUT
from engine.compute.runner.runner import Runner
from engine.decoding.request import Request
from engine.decoding.speculation.base import DraftRequest, DraftTree, HiddenRows, Proposer
from engine.decoding.speculation.proposers.chains import Chains
from engine.decoding.speculation.proposers.head_texts import sight_of
from engine.decoding.speculation.proposers.last_rows import LastRows


class AssistantProposer(Proposer):
    """Proposes chains, all requests of a step in one pass per depth."""

    name = "assistant"
    last_row_only = True

    def __init__(self, head: Assistant, runner: Runner, eos_ids: Collection[int]) -> None:
        """``runner`` runs the head over the target's arenas."""
        layers = head.target.num_layers
        self.needs_hidden = frozenset({layers})
        self._head, self._runner, self._eos_ids = head, runner, frozenset(eos_ids)
        self._rows = LastRows(layers)

    def propose(self, asks: Sequence[DraftRequest]) -> list[DraftTree]:
        """Implements :meth:`engine.decoding.speculation.base.Proposer.propose`."""
        chains = Chains(asks, self._eos_ids)
        places = chains.growing([place for place, ask in enumerate(asks) if self._ready(ask)])
        states = self._head.features(self._rows.of([asks[place].request for place in places])) if places else None
        while places:
            began = time.perf_counter()
            # The row before the last known token, which the target has computed, whatever was drafted after it.
            rows = [
                row._replace(start=asks[place].request.known - 2, policy=sight_of(asks[place].request))
                for row, place in zip(chains.rows(places), places, strict=True)
            ]
            out = self._runner.forward(rows, hidden_in=states, want_hidden=frozenset({OUTPUT}))
            chains.extend(places, out.logits)
            tokens = sum(row.start + 1 for row in rows)
            read = self._head.bytes_read_per_step() + tokens * self._head.kv_bytes_per_token()
            self._count(time.perf_counter() - began - self._runner.batch_seconds, read)
            growing, states = chains.growing(places), out.hidden[OUTPUT]
            if len(growing) < len(places):
                states = states[[row for row, place in enumerate(places) if place in growing]]
            places = growing
        return [chains.tree(place, self.name) for place in range(len(asks))]

    def see(self, seen: Sequence[HiddenRows]) -> None:
        """Keep the state that drew each request's last token."""
        self._rows.see(seen)

    def release(self, request: Request) -> None:
        self._rows.release(request)

    def _ready(self, ask: DraftRequest) -> bool:
        """Return True if the state is there, and the cache holds all tokens but the last."""
        request = ask.request
        return request.cached and request.pending == 1 and request.known > 1 and self._rows.has(request)
