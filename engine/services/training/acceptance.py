"""The worth of draft tokens: how often each head is right, and tokens per step of chains and trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.decoding.speculation.proposers.trees import static_tree

RANKS = 10
"""The number of candidates of each head that are looked at, as many as the trees of heads side by side use."""
TREES = (16, 63)


class AcceptanceFigures(NamedTuple):
    """Figures on held-out text. ``accuracies[d][r]``: how often candidate r of head d (or depth d) is the right token.

    ``reached[d]``: how often the top candidates up to depth d are all right. ``trees``: nodes -> tokens per step.
    ``positions`` is the number of positions that all of them are shares of.
    """

    positions: int
    accuracies: list[list[float]]
    reached: list[float]
    trees: dict[int, float]

    @property
    def tokens_per_step(self) -> float:
        """Tokens per step with a chain of top candidates: those accepted, and the one that each step gives anyway."""
        return 1.0 + sum(self.reached)

    @property
    def by_depth(self) -> list[float]:
        """Share of the top candidates accepted at each depth, of those whose parent was."""
        before = [1.0, *self.reached]
        return [now / last if last else 0.0 for now, last in zip(self.reached, before, strict=False)]


def ranks(logits: Tensor, tokens: Tensor) -> Tensor:
    """Rank of each of ``tokens [n]`` among the likeliest of ``logits [n, V]``: 0.., or :data:`RANKS` if it has none."""
    best = logits.topk(min(RANKS, logits.shape[-1]), dim=-1).indices
    hits = best == tokens[:, None]
    return torch.where(hits.any(-1), hits.int().argmax(-1), RANKS)


def measured(found: Tensor, trees: Sequence[int] = ()) -> AcceptanceFigures:
    """``found [positions, depths]`` holds the rank of the token that came at each depth.

    A tree's ranks are chosen by ``accuracies``; its tokens per step are counted along the ranks found.
    """
    count, depths = found.shape
    share = max(1, count)
    accuracies = [[int((found[:, d] == r).sum()) / share for r in range(RANKS)] for d in range(depths)]
    right = (found == 0).int().cumprod(1)
    reached = [int(right[:, d].sum()) / share for d in range(depths)]
    lengths = {size: 1.0 + _walked(found, static_tree(accuracies, size)) / share for size in trees}
    return AcceptanceFigures(count, accuracies, reached, lengths)


def _walked(found: Tensor, paths: Sequence[tuple[int, ...]]) -> int:
    """Draft tokens accepted at all positions together."""
    total = 0
    for path in paths:
        here = torch.tensor(path, device=found.device)
        total += int((found[:, : len(path)] == here).all(1).sum())
    return total
