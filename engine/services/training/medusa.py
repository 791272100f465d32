"""Training Medusa's heads (Cai et al. 2024) on a frozen model, in the layout of its hub repositories.

Head i reads the state h that the output layer reads at token t and predicts token t + 2 + i through that same layer:
``W (h + SiLU(A_i h + b_i))``. A and b begin as 0, so that at first every head says what the model says. Each learns the
model's own distribution of that token, by cross-entropy weighted 0.8 ** i as in the paper. A head may have several such
blocks in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.config.model import ModelConfig
from engine.services.training.acceptance import TREES, AcceptanceFigures
from engine.services.training.features import FeatureBatch
from engine.services.training.heads import TrainableHeads, some
from engine.services.training.target import TargetModel

DECAY = 0.8
BLOCKS = 2
"""Blocks of each head. A block adds little but what is positive (SiLU), and behind an output layer that the head cannot
change one is not enough to take back what the model says itself: on the bundled model two gave half as many correct
predictions again after the same steps."""


class ResBlock(nn.Module):
    """``x + SiLU(linear(x))``; at first it adds 0 to ``x``."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.silu(self.linear(x))


class TrainableMedusaHeads(TrainableHeads):
    """``count`` heads of :data:`BLOCKS` blocks; named as in the hub: ``{head}.{block}.linear.weight``."""

    kind, file, trees = "medusa", "medusa_lm_head.safetensors", TREES

    def __init__(self, hidden_size: int, count: int) -> None:
        super().__init__()
        self.rate = 8e-3 * (256 / hidden_size) ** 0.75  # 1e-3, as in the paper, at 4096
        for head in range(count):
            self.add_module(str(head), nn.Sequential(*(ResBlock(hidden_size) for _ in range(BLOCKS))))
        self.depths = count

    @classmethod
    def new(cls, config: ModelConfig, count: int, generator: torch.Generator) -> Self:
        return cls(config.hidden_size, count)

    @classmethod
    def like(cls, values: Mapping[str, Any], config: ModelConfig) -> Self | None:
        count = values.get("medusa_num_heads")
        return None if count is None else cls(config.hidden_size, int(count))

    def forward(self, x: Tensor, head: int) -> Tensor:
        """Apply ``head``: ``x [n, hidden_size]`` -> the same shape, the input of the output layer."""
        block: nn.Module = self.get_submodule(str(head))
        out: Tensor = block(x)
        return out

    def loss(self, batch: FeatureBatch, target: TargetModel, generator: torch.Generator) -> Tensor:
        index = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
        last = batch.lengths - 1
        rows, at = some(index < last[:, None], target.config.vocab_size, generator)
        width = batch.tokens.shape[1]
        flat = batch.features.flatten(0, 1)
        # The model's distribution of token t + 2 + i is what it computes at token t + 1 + i. Heads share these rows.
        ahead = torch.stack([(rows * width + torch.minimum(at + 1 + i, last[rows])) for i in range(self.depths)])
        needed, where = ahead.unique(return_inverse=True)
        with torch.no_grad():
            said = torch.softmax(target.logits(flat[needed]), -1)
        x = flat[rows * width + at]
        total = x.new_zeros(())
        for head in range(self.depths):
            exists = at + 1 + head <= last[rows]
            if bool(exists.any()):
                logits = target.logits(self(x[exists], head))
                total = total + DECAY**head * F.cross_entropy(logits, said[where[head][exists]])
        return total

    def drafting(self, batch: FeatureBatch, target: TargetModel) -> Callable[[Tensor, Tensor], list[Tensor]]:
        def drafts(row: Tensor, place: Tensor) -> list[Tensor]:
            x = batch.features[row, place]
            return [self(x, head) for head in range(self.depths)]

        return drafts

    def config(self, target: TargetModel, found: AcceptanceFigures) -> dict[str, Any]:
        """The keys of the hub's repositories, and two of Kvasir's own: ``shares_head`` and ``accuracies``."""
        return {
            "medusa_num_heads": self.depths,
            "medusa_num_layers": BLOCKS,
            "base_model_name_or_path": target.name,
            "hidden_size": target.config.hidden_size,
            "vocab_size": target.config.vocab_size,
            "shares_head": True,
            "accuracies": [[round(share, 4) for share in head] for head in found.accuracies],
        }
