"""The distribution that the sampler draws from, row by row: what the ratio test and typical acceptance judge by."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.compute.sampling import noise
from engine.compute.sampling.sampler import Draw, Kind, blocks, over_kinds, survivors


def probabilities(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Probabilities [L, V] float32 of the next token, from logits [L, V] of any float type.

    After bias, penalties, temperature and truncation, with the sampler's own survivors; all on one token at
    temperature 0. A row's numbers depend on its own logits and settings alone.
    """
    shares = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
    return over_kinds(logits, draws, _shares, shares)


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
