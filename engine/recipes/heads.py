"""The interface between the trainer and a kind of heads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from engine.recipes.acceptance import AcceptanceFigures
from engine.recipes.features import FeatureBatch
from engine.recipes.target import TargetModel

LOGITS = 1 << 24
"""The most logits that one head computes in a step: with a large vocabulary fewer positions are looked at."""


class Heads(nn.Module, ABC):
    """Heads of one kind for one target, in float32 while they learn."""

    kind: str
    file: str
    """The weights' name in the hub's layout."""
    rate: float
    """The highest learning rate."""

    @abstractmethod
    def loss(self, batch: FeatureBatch, target: TargetModel, generator: torch.Generator) -> Tensor:
        """A scalar with gradients; ``generator`` (of the CPU) gives noise and the choice of positions."""

    @abstractmethod
    def measure(self, batches: Iterable[FeatureBatch], target: TargetModel) -> AcceptanceFigures:
        """How well the counted tokens of the rows are predicted."""

    @abstractmethod
    def config(self, target: TargetModel, found: AcceptanceFigures) -> dict[str, Any]:
        """config.json of the hub's layout."""


def some(exists: Tensor, vocabulary: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Row and index of the positions where ``exists [B, n]``, or of as many at random as :data:`LOGITS` allows."""
    rows, places = exists.nonzero(as_tuple=True)
    most = max(1, LOGITS // vocabulary)
    if len(rows) > most:
        kept = torch.randperm(len(rows), generator=generator)[:most].sort().values.to(rows.device)
        rows, places = rows[kept], places[kept]
    return rows, places
