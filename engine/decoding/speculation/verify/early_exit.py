"""The target's forward pass of one step, in two parts where draft tokens came from its own first layers.

A proposer that exits after layer E (`DraftTree.early`) has run the layers [0, E) for the last committed token and for
all draft tokens except the last: their keys and values there are the target's own, and the residual streams are at
hand. So those layers run only for the remaining rows, and the layers from E on for all rows, which gives what one pass
over everything would (Elhoushi et al. 2024, LayerSkip, arXiv 2404.16710, section 4.3).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.compute.batch import ForwardOutput, SequenceRows
from engine.compute.runner.runner import Runner
from engine.decoding.speculation.base import DraftTree


def forward_step(
    runner: Runner,
    rows: Sequence[SequenceRows],
    trees: Sequence[DraftTree],
    want_hidden: frozenset[int] = frozenset(),
) -> ForwardOutput:
    """The result of ``runner.forward(rows, want_hidden=want_hidden)``; ``trees[i]`` holds the draft tokens that end
    ``rows[i]``.

    Afterwards ``runner.batch_seconds`` counts the building of both batches. Raises ValueError for early states that do
    not fit their rows, or that are of different exit layers.
    """
    exits = {tree.exit_layer for tree in trees if tree.early is not None}
    # Early states do not contain the states of lower layers. Where those are wanted, all rows run through all layers.
    if not exits or min(want_hidden, default=max(exits)) < max(exits):
        return runner.forward(rows, want_hidden=want_hidden) if want_hidden else runner.forward(rows)
    if len(exits) > 1:
        raise ValueError(f"the draft tokens of one step left the model after different layers: {sorted(exits)}")
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
    """The residual streams of all rows in order, [T, hidden_size]: early ones, and those in ``states`` for the rest."""
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
