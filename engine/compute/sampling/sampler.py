"""From logits to tokens: Gumbel-max over the processed logits with keyed noise (M5).

One draw's token depends on its logits, its own path and its key alone, never on what else is in the batch. So a row
that verifies a draft token draws exactly the token that plain decoding would have drawn at that place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.compute.sampling import device, noise
from engine.compute.sampling.draw import Draw, Kind, kind_of
from engine.compute.sampling.params import SamplingParams
from engine.compute.sampling.processors import History, bar_, bar_end_, bias_, dry_, penalise_
from engine.compute.sampling.truncation import Candidates, truncate, truncate_typical

_CHUNK = 1 << 21
"""Scores of one block of rows: bounds the float64 scratch of a large batch."""


class Drawn(NamedTuple):
    """Tokens, and of which rows it is known that the largest score is a finite number (of others it was not asked)."""

    tokens: list[int]
    finite: list[bool]


class LogProbs(NamedTuple):
    """Log-probabilities of the drawn token, and of the likeliest (token id, log-probability)."""

    chosen: float
    top: list[tuple[int, float]]


def new_history(params: SamplingParams, vocabulary: int, prompt_length: int, device: torch.device) -> History | None:
    """The history that draws with these settings need, or None."""
    return History(vocabulary, prompt_length, device) if params.counts else None


def sample(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
    """The token of each row of ``logits`` [L, V] (any float type)."""
    return drawn(logits, draws).tokens


def drawn(logits: Tensor, draws: Sequence[Draw]) -> Drawn:
    """Same as :func:`sample`: by kernels where they are trusted, with one transfer from the device for all rows."""
    if not draws:
        return Drawn([], [])
    tokens = None
    if device.declines(logits.dtype, logits.shape[1], logits.device, by_torch) is None:
        tokens = device.draw(logits, draws)
    if tokens is None:
        return Drawn(by_torch(logits, draws), [False] * len(draws))
    rest = [row for row, token in enumerate(tokens) if token is None]
    others = iter(by_torch(logits[rest], [draws[row] for row in rest]) if rest else ())
    return Drawn(
        [next(others) if token is None else token for token in tokens], [token is not None for token in tokens]
    )


def by_torch(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
    """Same as :func:`sample`, by torch's operators: the definition, and what draws where no kernel does."""
    if all(draw.params.greedy and draw.plain for draw in draws):
        return likeliest(logits)
    return over_kinds(logits, draws, _choose, torch.empty(len(draws), dtype=torch.int64, device=logits.device)).tolist()


def likeliest(logits: Tensor) -> list[int]:
    """The first of the largest of each row of ``logits [L, V]``: on a CPU by NumPy, which takes a tenth of the time."""
    found = logits.float().numpy() if logits.device.type == "cpu" and logits.dtype != torch.float64 else logits
    indices: list[int] = found.argmax(-1).tolist()
    return indices


def top_log_probs(logs: Tensor, tokens: Sequence[int], most: int) -> list[LogProbs]:
    """Log-probability of each row's token, and the ``most`` likeliest ones, of log-probabilities ``logs`` [R, V]."""
    chosen = logs.gather(1, torch.tensor(tokens, dtype=torch.int64, device=logs.device)[:, None]).flatten().tolist()
    top = torch.topk(logs, min(most, logs.shape[1]), dim=-1)
    likeliest = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return [LogProbs(one, list(zip(*top, strict=True))) for one, top in zip(chosen, likeliest, strict=True)]


def processed(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Scores [L, V] float32 after bias, penalties, DRY, what bars tokens, and temperature, before truncation; greedy
    rows unscaled."""
    scores = logits.to(torch.float32)
    if any(not draw.plain for draw in draws):
        scores = scores.clone() if scores is logits else scores
        _penalise_rows_(scores, draws)
    heat = [1.0 if draw.params.greedy else draw.params.temperature for draw in draws]
    if any(value != 1.0 for value in heat):
        scores = scores / torch.tensor(heat, dtype=torch.float32, device=scores.device).unsqueeze(1)
    return scores


def blocks(rows: int, vocabulary: int) -> list[slice]:
    """Rows to treat at a time, so that float64 scratch of the vocabulary's width stays bounded."""
    size = max(1, _CHUNK // vocabulary)
    return [slice(start, min(rows, start + size)) for start in range(0, rows, size)]


def by_kind(draws: Sequence[Draw]) -> dict[Kind, list[int]]:
    """The rows that each way of choosing serves."""
    kinds: dict[Kind, list[int]] = {}
    for row, draw in enumerate(draws):
        kinds.setdefault(kind_of(draw.params), []).append(row)
    return kinds


def over_kinds(
    logits: Tensor, draws: Sequence[Draw], apply: Callable[[Kind, Tensor, Sequence[Draw]], Tensor], out: Tensor
) -> Tensor:
    """Put ``apply``'s results ``[R, ...]`` over the processed scores ``[R, V]`` of rows of one kind into ``out``
    ``[L, ...]``, a block of rows after the other."""
    for rows in blocks(*logits.shape):
        mine, part = draws[rows], out[rows]
        scores = processed(logits[rows], mine)
        for kind, members in by_kind(mine).items():
            if len(members) == len(mine):
                part.copy_(apply(kind, scores, mine))
            else:
                part[members] = apply(kind, scores[members], [mine[member] for member in members])
    return out


def survivors(kind: Kind, scores: Tensor, draws: Sequence[Draw]) -> Candidates:
    """Candidates that truncation leaves of the processed ``scores`` [R, V] of rows of a truncating kind."""
    settings = [draw.params for draw in draws]
    return truncate_typical(scores, settings) if kind == "typical" else truncate(scores, settings)


def _choose(kind: Kind, scores: Tensor, draws: Sequence[Draw]) -> Tensor:
    if kind == "greedy":
        return scores.argmax(-1)
    vocabulary = scores.shape[1]
    keys = noise.keys([draw.key for draw in draws], scores.device)
    if kind == "whole":
        return noise.gumbel(keys, None, vocabulary).add_(scores).argmax(-1)
    candidates = survivors(kind, scores, draws)
    best = noise.gumbel(keys, candidates.ids, vocabulary).add_(candidates.scores).argmax(-1, keepdim=True)
    return candidates.ids.gather(1, best).squeeze(1)


def _penalise_rows_(scores: Tensor, draws: Sequence[Draw]) -> None:
    for row, draw in enumerate(draws):
        params = draw.params
        if draw.plain:
            continue
        line = scores[row]
        allowed = None if draw.constraint is None else draw.constraint.allowed(draw.tokens, draw.path)
        bias_(line, params)
        if allowed is None or not allowed.ends:  # an answer that cannot go on ends, however short it is
            bar_end_(line, len(draw.tokens) + len(draw.path), params)
        if allowed is not None:
            bar_(line, allowed.words)
        if params.counts:
            penalise_(line, _history(draw), params)
        if params.dry_multiplier > 0.0:
            dry_(line, np.fromiter((*draw.tokens, *draw.path), dtype=np.int64), params)


def _history(draw: Draw) -> History:
    """The history at this row: the answer's own, extended along the drafted path."""
    assert draw.history is not None, "penalties need a history"
    draw.history.extend(draw.tokens)
    if not draw.path:
        return draw.history
    history = draw.history.copy()
    for token in draw.path:
        history.push(token)
    return history
