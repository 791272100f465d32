"""Log-probabilities of a prompt's own tokens, computed from the states of its rows while it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.compute.runner.runner import Runner
from engine.compute.sampling.sampler import top_log_probs
from engine.decoding.request import Request
from engine.decoding.scheduling.plan import Slice
from engine.decoding.speculation.base import DraftTree
from engine.protocol import TokenInfo

_LOGITS = 1 << 23
"""Numbers in the logits of a block."""


def scored_rows(piece: Slice[Request]) -> range:
    """The rows of a slice, counted from its first, that predict a token of the prompt which was not told yet."""
    request = piece.sequence
    if request.task.logprobs is None:
        return range(0)
    start = request.num_computed
    stop = min(start + piece.rows, request.prompt_length - 1)
    return range(max(0, request.task.scored - start), max(0, stop - start))


def wants_scores(slices: Sequence[Slice[Request]]) -> bool:
    """Return True if some slice has rows to score."""
    return any(scored_rows(piece) for piece in slices)


def prompt_scores(
    runner: Runner, slices: Sequence[Slice[Request]], trees: Sequence[DraftTree], hidden: Tensor, vocabulary: int
) -> dict[tuple[str, int], list[TokenInfo]]:
    """Log-probabilities of the prompts' tokens that were not told yet, by request; ``hidden`` [T, hidden_size] is the
    input of the final norm."""
    found: dict[tuple[str, int], list[TokenInfo]] = {}
    first, size = 0, max(1, _LOGITS // max(1, vocabulary))
    for piece, tree in zip(slices, trees, strict=True):
        if rows := scored_rows(piece):
            request = piece.sequence
            states = hidden[first + rows.start : first + rows.stop]
            begin = request.num_computed + rows.start + 1
            found[request.owner] = list(_scores(runner, states, request, begin, size))
        first += piece.rows + len(tree.tokens)
    return found


def _scores(runner: Runner, states: Tensor, request: Request, begin: int, size: int) -> Iterator[TokenInfo]:
    """Log-probabilities of the tokens from number ``begin`` on, one for each of the ``states``, of which ``size`` are
    read at a time."""
    tokens = request.tokens[begin : begin + states.shape[0]]
    for start in range(0, len(tokens), size):
        mine = tokens[start : start + size]
        logs = torch.log_softmax(runner.logits(states[start : start + size]).to(torch.float32), dim=-1)
        for token, scores in zip(mine, top_log_probs(logs, mine, request.task.logprobs or 0), strict=True):
            yield TokenInfo(id=token, logprob=scores.chosen, top=scores.top)
