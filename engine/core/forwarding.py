"""The target's forward of one step, in two parts where guesses were made by its own first layers.

A proposer that left the model after layer E (`DraftTree.early`) has run the layers [0, E) for the last committed token
and for all guesses but the last: their keys and values there are the target's own, and the streams that came out are at
hand. So those layers run only for the rows that lack them, and the layers from E on for all rows, which gives what one
pass over everything would (Elhoushi et al. 2024, LayerSkip, arXiv 2404.16710, section 4.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from engine.core.batch import ForwardOutput
from engine.core.runner import SequenceRows
from engine.speculation.base import DraftTree


class TargetRunner(Protocol):
    """What is needed of :class:`engine.core.runner.Runner`; without early states, and without wanted ones, only
    ``forward(rows)``."""

    batch_seconds: float

    @property
    def num_layers(self) -> int: ...

    def forward(
        self,
        rows: Sequence[SequenceRows],
        *,
        layers: tuple[int, int] | None = None,
        hidden_in: Tensor | None = None,
        want_hidden: frozenset[int] = frozenset(),
        skip: frozenset[int] = frozenset(),
    ) -> ForwardOutput:
        """See :meth:`engine.core.runner.Runner.forward`."""


def forward_step(
    runner: TargetRunner,
    rows: Sequence[SequenceRows],
    trees: Sequence[DraftTree],
    want_hidden: frozenset[int] = frozenset(),
) -> ForwardOutput:
    """What ``runner.forward(rows, want_hidden=want_hidden)`` gives; ``trees[i]`` are the guesses at the end of row i's.

    Afterwards ``runner.batch_seconds`` counts the building of both batches. Raises ValueError for early states that do
    not fit their rows, or that left after different layers.
    """
    exits = {tree.exit_layer for tree in trees if tree.early is not None}
    # Early states say nothing of the layers below them. Where somebody wants those of the step's rows, all rows run.
    if not exits or min(want_hidden, default=max(exits)) < max(exits):
        return runner.forward(rows, want_hidden=want_hidden) if want_hidden else runner.forward(rows)
    if len(exits) > 1:
        raise ValueError(f"the guesses of one step left the model after different layers: {sorted(exits)}")
    (exit_layer,) = exits
    lacking = [_lacking(row, tree) for row, tree in zip(rows, trees, strict=True)]
    below = [row for row in lacking if row.tokens]
    seconds, states = 0.0, None
    if below:
        states = runner.forward(below, layers=(0, exit_layer)).hidden[exit_layer]
        seconds = runner.batch_seconds
    stream = _assembled(lacking, trees, states)
    out = runner.forward(rows, layers=(exit_layer, runner.num_layers), hidden_in=stream, want_hidden=want_hidden)
    runner.batch_seconds += seconds
    return out


def _lacking(row: SequenceRows, tree: DraftTree) -> SequenceRows:
    """The rows of a sequence that have no early states, perhaps none."""
    if tree.early is None:
        return row._replace(want_logits=0)
    count = tree.early.shape[0]
    if row.parents is not None or not 0 < count <= len(row.tokens):
        raise ValueError(f"early states of {count} rows for {len(row.tokens)} rows, which must be a chain")
    return row._replace(tokens=row.tokens[count:], start=row.start + count, want_logits=0)


def _assembled(lacking: Sequence[SequenceRows], trees: Sequence[DraftTree], states: Tensor | None) -> Tensor:
    """The streams of all rows in order, [T, hidden_size], from the early ones and from ``states`` of the others."""
    parts: list[Tensor] = []
    start = 0
    for row, tree in zip(lacking, trees, strict=True):
        if tree.early is not None:
            parts.append(tree.early)
        if row.tokens:
            assert states is not None
            parts.append(states[start : start + len(row.tokens)])
            start += len(row.tokens)
    return torch.cat(parts)
