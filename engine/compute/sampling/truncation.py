"""Top-k, top-p, min-p and typical-p over a short sorted list of candidates instead of the whole vocabulary.

The survivors are those of transformers' logits processors applied in this order. The list starts with 64 candidates
and grows only where a row's survivors may reach beyond it, so that the usual settings never sort a vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.compute.sampling.params import SamplingParams

_FIRST = 64
_GROWTH = 16


class Candidates(NamedTuple):
    """Scores [R, C] float32, falling along C, -inf where truncated; ids [R, C] int64. Every row keeps one at least."""

    scores: Tensor
    ids: Tensor


class TruncationSettings(NamedTuple):
    """The rows' settings as columns [R, 1]; ``top_k`` is at least 1 and at most the vocabulary."""

    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    typical_p: Tensor


def truncate(scores: Tensor, rows: Sequence[SamplingParams]) -> Candidates:
    """Survivors of scores [R, V] float32 (already divided by the temperature)."""
    vocabulary = scores.shape[1]
    limits = _limits(rows, vocabulary, scores.device)
    whole = scores.to(torch.float64).logsumexp(-1, keepdim=True) if any(row.top_p < 1.0 for row in rows) else None
    size = min(vocabulary, max(_FIRST, *(row.top_k + 1 for row in rows)))
    while True:
        top = torch.topk(scores, size, dim=-1) if size < vocabulary else torch.sort(scores, dim=-1, descending=True)
        kept, unsure = _keep(top[0], whole, limits, vocabulary)
        if size == vocabulary or not bool(unsure.any()):
            break
        size = min(vocabulary, size * _GROWTH)
    kept = _typical(top[0], kept, limits, rows)
    return Candidates(top[0].masked_fill(~kept, -torch.inf), top[1])


def truncate_typical(scores: Tensor, rows: Sequence[SamplingParams]) -> Candidates:
    """Survivors of scores [R, V] when typical-p is the only truncation; the candidates fall along surprise instead.

    The most likely tokens need not be typical, so this list is built from the surprise of the whole vocabulary.
    """
    vocabulary = scores.shape[1]
    wanted = torch.tensor([[row.typical_p] for row in rows], dtype=torch.float64, device=scores.device)
    logs = torch.log_softmax(scores.to(torch.float64), dim=-1)
    shares = logs.exp()
    surprise = _surprise(logs, shares)
    size = min(vocabulary, _FIRST * _GROWTH)
    while True:
        near = torch.topk(surprise, size, dim=-1, largest=False)
        kept = _most_typical(near.values, shares.gather(1, near.indices), wanted)
        if size == vocabulary or not bool(kept[:, -1].any()):
            return Candidates(scores.gather(1, near.indices).masked_fill(~kept, -torch.inf), near.indices)
        size = min(vocabulary, size * _GROWTH)


def _limits(rows: Sequence[SamplingParams], vocabulary: int, device: torch.device) -> TruncationSettings:
    def column(values: list[float], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device).unsqueeze(1)

    return TruncationSettings(
        column([min(row.top_k or vocabulary, vocabulary) for row in rows], torch.int64),
        column([row.top_p for row in rows], torch.float64),
        column([row.min_p for row in rows], torch.float64),
        column([row.typical_p for row in rows], torch.float64),
    )


def _keep(top: Tensor, whole: Tensor | None, limits: TruncationSettings, vocabulary: int) -> tuple[Tensor, Tensor]:
    """The survivors of top-k, top-p and min-p among the sorted candidates ``top`` [R, C]: a mask [R, C]; and of which
    rows [R] the candidates do not tell, since the last one survived or belongs to what the nucleus is a share of."""
    size = top.shape[1]
    place = (limits.top_k - 1).clamp(max=size - 1)
    # Ties with the k-th candidate stay, as in transformers; a k beyond the list closes nothing yet.
    kept = (top >= top.gather(1, place)) | (limits.top_k > size)
    unsure = torch.zeros_like(kept[:, -1])
    if whole is not None:
        exact = top.to(torch.float64)
        among_k = exact.masked_fill(~kept, -torch.inf).logsumexp(-1, keepdim=True)
        norm = torch.where(limits.top_k < vocabulary, among_k, whole)
        unsure = kept[:, -1] & (limits.top_k < vocabulary).squeeze(1)
        share = (exact - norm).exp_().masked_fill_(~kept, 0.0)
        before = share.cumsum(-1) - share
        nucleus = (before < limits.top_p) | (limits.top_p >= 1.0)
        nucleus[:, 0] = True
        # Tokens tied with the last one of the nucleus belong to it: which of them sorts first means nothing.
        # Of a row with a score that is not a number nothing is kept, which must not cost the other rows their step.
        last = ((kept & nucleus).sum(-1, keepdim=True) - 1).clamp(min=0)
        kept &= top >= top.gather(1, last)
    # p / p_max >= min_p, in logits.
    kept = kept & (top >= top[:, :1] + limits.min_p.log())
    return kept, unsure | kept[:, -1]


def _typical(top: Tensor, kept: Tensor, limits: TruncationSettings, rows: Sequence[SamplingParams]) -> Tensor:
    """Locally typical sampling (Meister et al. 2022) among the survivors ``kept`` [R, C]."""
    if all(row.typical_p >= 1.0 for row in rows):
        return kept
    logs = torch.log_softmax(top.to(torch.float64).masked_fill(~kept, -torch.inf), dim=-1)
    shares = logs.exp()
    order = _surprise(logs, shares).sort(dim=-1)
    typical = _most_typical(order.values, shares.gather(1, order.indices), limits.typical_p)
    unsorted = torch.zeros_like(kept).scatter_(1, order.indices, typical)
    return kept & (unsorted | (limits.typical_p >= 1.0))


def _surprise(logs: Tensor, shares: Tensor) -> Tensor:
    """Distance of each token's information [R, C] from the expected information."""
    entropy = -(shares * logs).nansum(-1, keepdim=True)
    return (-logs - entropy).abs()


def _most_typical(surprise: Tensor, shares: Tensor, wanted: Tensor) -> Tensor:
    """A mask of the least surprising tokens that hold the ``wanted`` share [R, 1]; ``surprise`` rises along C."""
    last = (shares.cumsum(-1) < wanted).sum(-1, keepdim=True).clamp(max=surprise.shape[1] - 1)
    return surprise <= surprise.gather(1, last)
