"""The distribution that the sampler draws from, row by row: what the ratio test and typical acceptance judge by, and
what clients may be told of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.compute.sampling import noise
from engine.compute.sampling.sampler import Draw, Kind, LogProbs, blocks, over_kinds, survivors, top_log_probs


def probabilities(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Probabilities [L, V] float32 of the next token, from logits [L, V] of any float type.

    After bias, penalties, temperature and truncation, with the sampler's own survivors; all on one token at
    temperature 0. A row's numbers depend on its own logits and settings alone.
    """
    shares = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
    return over_kinds(logits, draws, _shares, shares)


def log_probs(logits: Tensor, draws: Sequence[Draw], tokens: Sequence[int]) -> list[LogProbs | None]:
    """Log-probabilities of the rows of ``logits`` [L, V] that ask for them: of the logits as the model gave them, or of
    what is drawn from, where truncated tokens are not among the likeliest."""
    found: list[LogProbs | None] = [None] * len(draws)
    rows = [row for row, draw in enumerate(draws) if draw.params.logprobs is not None]
    for drawn in (False, True):
        mine = [row for row in rows if draws[row].params.logprobs_drawn is drawn]
        if not mine:
            continue
        asked = [draws[row] for row in mine]
        logs = probabilities(logits[mine], asked).log() if drawn else torch.log_softmax(logits[mine].float(), dim=-1)
        most = max(draw.params.logprobs or 0 for draw in asked)
        for row, one in zip(mine, top_log_probs(logs, [tokens[row] for row in mine], most), strict=True):
            top = one.top[: draws[row].params.logprobs]
            found[row] = one._replace(top=[each for each in top if each[1] > -math.inf])
    return found


def draw_from(shares: Tensor, draws: Sequence[Draw], salt: int) -> Tensor:
    """A token [R] int64 of each row of ``shares`` [R, V], which need not sum to 1, by the noise of ``salt``."""
    parts = []
    for rows in blocks(*shares.shape):
        keys = noise.keys([draw.key for draw in draws[rows]], shares.device, salt)
        scores = shares[rows].to(torch.float64).log_()
        parts.append(noise.gumbel(keys, None, shares.shape[1]).add_(scores).argmax(-1))
    return torch.cat(parts)


def _shares(kind: Kind, scores: Tensor, draws: Sequence[Draw]) -> Tensor:
    if kind == "greedy":
        return torch.zeros_like(scores).scatter_(1, scores.argmax(-1, keepdim=True), 1.0)
    if kind != "whole":
        kept = survivors(kind, scores, draws)
        # Summed over the whole vocabulary, because the length of the list depends on the other rows.
        scores = torch.full_like(scores, -torch.inf).scatter_(1, kept.ids, kept.scores)
    return torch.softmax(scores, dim=-1)
