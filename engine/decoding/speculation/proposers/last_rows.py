"""The states that drew each request's last token, for proposers that go on from such a state alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.decoding.request import Request
from engine.decoding.speculation.base import HiddenRows


class _State(NamedTuple):
    """The stream [hidden_size] of the row that drew token ``drawn`` of its request."""

    hidden: Tensor
    drawn: int
    preemptions: int


class LastRows:
    """The stream that entered ``layer`` of the target, in the last row of each request that was seen."""

    def __init__(self, layer: int) -> None:
        self._layer = layer
        self._states: dict[tuple[str, int], _State] = {}

    def see(self, seen: Sequence[HiddenRows]) -> None:
        """Keep the states of rows that drew their requests' last tokens."""
        fresh: list[tuple[Request, Tensor]] = []
        for request, start, hidden in seen:
            stream = hidden[self._layer]
            if start + stream.shape[0] == len(request.tokens) - 1:
                fresh.append((request, stream[-1]))
            else:
                self.release(request)
        if not fresh:
            return
        # Copied, because a view of one row would keep all states of the step alive.
        kept = torch.stack([row for _, row in fresh])
        for (request, _), row in zip(fresh, kept, strict=True):
            self._states[request.owner] = _State(row, len(request.tokens) - 1, request.standing.preemptions)

    def has(self, request: Request) -> bool:
        """Return True if the state that drew the last known token is there; an outdated one is dropped."""
        state = self._states.get(request.owner)
        if state is None:
            return False
        if state.drawn != len(request.tokens) - 1 or state.preemptions != request.standing.preemptions:
            self.release(request)
            return False
        return True

    def of(self, requests: Sequence[Request]) -> Tensor:
        """Their states ``[n, hidden_size]``."""
        return torch.stack([self._states[request.owner].hidden for request in requests])

    def release(self, request: Request) -> None:
        self._states.pop(request.owner, None)
