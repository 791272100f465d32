"""Figures of guesses against counting them one by one."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from engine.recipes.acceptance import RANKS, measured, rank_paths, ranks


def test_ranks() -> None:
    logits = torch.randn(50, 30, generator=torch.Generator().manual_seed(0))
    tokens = torch.arange(50) % 30
    for row, token, rank in zip(logits, tokens, ranks(logits, tokens), strict=True):
        assert rank == min(RANKS, int((row > row[token]).sum()))
    assert ranks(torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([0])).tolist() == [2], "fewer tokens than ranks"


@pytest.mark.parametrize("size", [1, 5, 16, 63])
def test_rank_paths_are_the_best_tree(size: int) -> None:
    draw = torch.rand(3, 6, generator=torch.Generator().manual_seed(size)).sort(1, descending=True).values
    accuracies = (draw / draw.sum(1, keepdim=True)).tolist()
    paths = rank_paths(accuracies, size)
    assert len(set(paths)) == size
    assert all(path[:-1] in paths[:i] for i, path in enumerate(paths) if len(path) > 1)
    every = [p for depth in (1, 2, 3) for p in itertools.product(range(6), repeat=depth)]

    def worth(path: tuple[int, ...]) -> float:
        return math.prod(accuracies[head][rank] for head, rank in enumerate(path))

    best = sorted(map(worth, every), reverse=True)[:size]
    assert sorted(map(worth, paths), reverse=True) == pytest.approx(best)


def test_chains_and_trees_are_counted() -> None:
    generator = torch.Generator().manual_seed(3)
    found = torch.multinomial(torch.tensor([0.5, 0.2, 0.1, *[0.02] * 7, 0.06]), 400 * 3, True, generator=generator)
    found = found.view(400, 3)
    result = measured(found, (5, 20))
    chains = sum(next((d for d in range(3) if row[d] != 0), 3) for row in found.tolist())
    assert result.tokens_per_step == pytest.approx(1 + chains / 400)
    assert math.prod(result.by_depth) == pytest.approx(result.reached[-1])
    for size, length in result.trees.items():
        paths = set(rank_paths(result.accuracies, size))
        accepted = sum(max((d for d in (1, 2, 3) if tuple(row[:d]) in paths), default=0) for row in found.tolist())
        assert length == pytest.approx(1 + accepted / 400)
    assert result.tokens_per_step < result.trees[5] < result.trees[20]
    assert measured(torch.empty(0, 2, dtype=torch.int64), (16,)).tokens_per_step == 1.0
