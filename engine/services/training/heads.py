"""The interface between the trainer and a kind of heads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from engine.config.model import ModelConfig
from engine.services.training.acceptance import AcceptanceFigures, measured, ranks
from engine.services.training.features import FeatureBatch
from engine.services.training.target import TargetModel

LOGITS = 1 << 24
"""The most logits that one head computes in a step: with a large vocabulary fewer positions are looked at."""


class TrainableHeads(nn.Module, ABC):
    """Heads of one kind for one target, in float32 while they learn."""

    kind: str
    """The name of their proposer."""
    file: str
    """The weights' name in the hub's layout."""
    rate: float
    """The highest learning rate."""
    depths: int
    """How many tokens ahead are predicted."""
    trees: tuple[int, ...] = ()
    """The sizes of the trees that are measured."""

    @classmethod
    @abstractmethod
    def new(cls, config: ModelConfig, count: int, generator: torch.Generator) -> Self:
        """Untrained heads for a target of that ``config``: ``count`` of them, where the kind has several."""

    @classmethod
    @abstractmethod
    def like(cls, values: Mapping[str, Any], config: ModelConfig) -> Self | None:
        """Heads of the shapes that are written down in the ``values`` of their config.json; None: of another kind."""

    @abstractmethod
    def loss(self, batch: FeatureBatch, target: TargetModel, generator: torch.Generator) -> Tensor:
        """A scalar with gradients; ``generator`` (of the CPU) gives noise and the choice of positions."""

    @abstractmethod
    def drafting(self, batch: FeatureBatch, target: TargetModel) -> Callable[[Tensor, Tensor], list[Tensor]]:
        """Rows and indices ``[n]`` of the batch -> for each depth what the output layer is given, ``[n, hidden]``."""

    @abstractmethod
    def config(self, target: TargetModel, found: AcceptanceFigures) -> dict[str, Any]:
        """config.json of the hub's layout."""

    @torch.no_grad()
    def measure(self, batches: Iterable[FeatureBatch], target: TargetModel) -> AcceptanceFigures:
        """Measure how well the counted tokens of the rows are predicted.

        A position counts if the model wrote all tokens that are predicted from there.
        """
        found = [torch.empty(0, self.depths, dtype=torch.int64)]
        chunk = max(1, LOGITS // target.config.vocab_size)
        for batch in batches:
            index = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
            counts = (index + 2 >= batch.counted[:, None]) & (index + 1 + self.depths < batch.lengths[:, None])
            rows, at = counts.nonzero(as_tuple=True)
            drafts = self.drafting(batch, target)
            for row, place in zip(rows.split(chunk), at.split(chunk), strict=True):
                mine = [
                    ranks(target.logits(draft), batch.tokens[row, place + 2 + depth])
                    for depth, draft in enumerate(drafts(row, place))
                ]
                found.append(torch.stack(mine, 1).cpu())
        return measured(torch.cat(found), self.trees)


def some(exists: Tensor, vocabulary: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Row and index of the positions where ``exists [B, n]``, or of as many at random as :data:`LOGITS` allows."""
    rows, places = exists.nonzero(as_tuple=True)
    most = max(1, LOGITS // vocabulary)
    if len(rows) > most:
        kept = torch.randperm(len(rows), generator=generator)[:most].sort().values.to(rows.device)
        rows, places = rows[kept], places[kept]
    return rows, places
