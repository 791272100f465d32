"""Pooled states of prompts, which embeddings are made of, summed over the rows of a prompt while it is read."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.compute.runner.runner import Runner
from engine.decoding.request import Request
from engine.decoding.scheduling.plan import Slice
from engine.decoding.speculation.base import DraftTree


def pooled_rows(piece: Slice[Request]) -> range:
    """The rows of a slice, counted from its first, whose states belong to the embedding and are not in it yet."""
    request = piece.sequence
    if request.task.pooling is None:
        return range(0)
    first = request.prompt_length - 1 if request.task.pooling == "last" else request.task.scored
    stop = 1 if request.task.pooling == "cls" else request.prompt_length
    return range(max(0, first - request.num_computed), min(piece.rows, max(0, stop - request.num_computed)))


def wants_pooling(slices: Sequence[Slice[Request]]) -> bool:
    """Return True if some slice has rows to pool."""
    return any(pooled_rows(piece) for piece in slices)


def pooled_states(
    runner: Runner, slices: Sequence[Slice[Request]], trees: Sequence[DraftTree], hidden: Tensor
) -> dict[tuple[str, int], Tensor]:
    """Sums [hidden_size] float32 of the normalised states of the rows to pool, by request; ``hidden`` [T, hidden_size]
    is the input of the final norm."""
    found: dict[tuple[str, int], Tensor] = {}
    first = 0
    for piece, tree in zip(slices, trees, strict=True):
        if rows := pooled_rows(piece):
            states = runner.normed(hidden[first + rows.start : first + rows.stop])
            found[piece.sequence.owner] = states.to(torch.float32).sum(dim=0)
        first += piece.rows + len(tree.tokens)
    return found
