"""Figures of drafts against counting them one by one."""

from __future__ import annotations

import math

import pytest
import torch

from engine.decoding.speculation.proposers.trees import static_tree
from engine.services.training.acceptance import RANKS, measured, ranks


def test_ranks() -> None:
    logits = torch.randn(50, 30, generator=torch.Generator().manual_seed(0))
    tokens = torch.arange(50) % 30
    for row, token, rank in zip(logits, tokens, ranks(logits, tokens), strict=True):
        assert rank == min(RANKS, int((row > row[token]).sum()))
    assert ranks(torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([0])).tolist() == [2], "fewer tokens than ranks"


def test_chains_and_trees_are_counted() -> None:
    generator = torch.Generator().manual_seed(3)
    found = torch.multinomial(torch.tensor([0.5, 0.2, 0.1, *[0.02] * 7, 0.06]), 400 * 3, True, generator=generator)
    found = found.view(400, 3)
    result = measured(found, (5, 20))
    chains = sum(next((d for d in range(3) if row[d] != 0), 3) for row in found.tolist())
    assert result.tokens_per_step == pytest.approx(1 + chains / 400)
    assert math.prod(result.by_depth) == pytest.approx(result.reached[-1])
    for size, length in result.trees.items():
        paths = set(static_tree(result.accuracies, size))
        accepted = sum(max((d for d in (1, 2, 3) if tuple(row[:d]) in paths), default=0) for row in found.tolist())
        assert length == pytest.approx(1 + accepted / 400)
    assert result.tokens_per_step < result.trees[5] < result.trees[20]
    assert measured(torch.empty(0, 2, dtype=torch.int64), (16,)).tokens_per_step == 1.0
