"""The verifier goes down the tree along the target's own tokens, and its law is the target's."""

from __future__ import annotations

import dataclasses
import itertools
import random

import numpy as np
import pytest
import torch

from engine.compute.sampling.params import SamplingParams
from engine.compute.sampling.sampler import Draw, sample
from engine.decoding.speculation.base import DraftTree
from engine.decoding.speculation.verify.verifier import verify
from tests.kit.pairs import each_value


@pytest.mark.parametrize(
    ("tokens", "targets", "nodes", "token", "source"),
    [
        ((), [7], (), 7, "target"),
        ((5, 6), [5, 6, 9], (0, 1), 9, "bonus"),
        ((5, 6), [5, 4, 9], (0,), 4, "corrected"),
        ((5, 6), [3, 6, 9], (), 3, "corrected"),
    ],
)
def test_chains(tokens: tuple[int, ...], targets: list[int], nodes: tuple[int, ...], token: int, source: str) -> None:
    assert verify(DraftTree(tokens), targets) == (nodes, token, source)


def test_trees_descend_where_a_child_agrees() -> None:
    #      root -> 5 -> 6 ; root -> 8 -> 9 -> 1
    tree = DraftTree((5, 6, 8, 9, 1), (-1, 0, -1, 2, 3))
    assert verify(tree, [8, 0, 0, 9, 4, 0]) == ((2, 3), 4, "corrected")
    assert verify(tree, [5, 6, 7, 0, 0, 0]) == ((0, 1), 7, "bonus")
    assert verify(tree, [2, 0, 0, 0, 0, 0]) == ((), 2, "corrected")
    assert tree.path(4) == (8, 9, 1)
    assert tree.path(-1) == ()
    assert DraftTree((3, 4, 5)).path(1) == (3, 4)


@pytest.mark.parametrize("seed", range(20))
def test_a_chain_and_the_same_chain_as_a_tree_agree(seed: int) -> None:
    rng = random.Random(seed)
    tokens = tuple(rng.randrange(3) for _ in range(5))
    targets = [rng.randrange(3) for _ in range(6)]
    assert verify(DraftTree(tokens), targets) == verify(DraftTree(tokens, (-1, 0, 1, 2, 3)), targets)


VOCABULARY = 6
MODEL = torch.from_numpy(np.random.default_rng(4).normal(0, 1.2, (VOCABULARY + 1, VOCABULARY, VOCABULARY))).float()


def speculated(seed: int, params: SamplingParams, wrong: bool) -> tuple[int, int]:
    """The first two tokens of a bigram model, speculated from a uniform drafter with a tree of two branches."""
    rng = random.Random(seed)
    params = dataclasses.replace(params, seed=seed)
    tokens = [0]
    while len(tokens) < 3:
        tree = DraftTree((*rng.sample(range(VOCABULARY), 2), rng.randrange(VOCABULARY)), (-1, -1, 0))
        paths = [tree.path(node) for node in range(-1, 3)]
        rows = torch.stack([MODEL[min(len(tokens) + len(path) - 1, 1), (tokens + list(path))[-1]] for path in paths])
        targets = sample(rows, [Draw(params, 0, tokens, path) for path in paths])
        if wrong and targets[0] != tree.tokens[0]:
            targets[0] = tree.tokens[1]
        verdict = verify(tree, targets)
        tokens += [tree.tokens[node] for node in verdict.nodes] + [verdict.token]
    return tokens[1], tokens[2]


@pytest.mark.slow
@each_value(
    wrong=[True, False],
    params={"whole": SamplingParams(seed=0), "nucleus": SamplingParams(seed=0, temperature=0.7, top_p=0.9)},
)
def test_two_tokens_follow_the_joint_law_of_the_target(params: SamplingParams, wrong: bool) -> None:
    """Chi-square over all pairs; the negative control accepts a draft that the target did not draw."""
    many = 4000

    def law(step: int, last: int) -> np.ndarray:
        logits = MODEL[step, last].double() / params.temperature
        order = logits.sort(descending=True)
        share = torch.softmax(order.values, -1)
        keep = torch.zeros(VOCABULARY, dtype=torch.bool).scatter(
            0, order.indices, share.cumsum(0) - share < params.top_p
        )
        return torch.softmax(logits.masked_fill(~keep, -torch.inf), -1).numpy()

    counts: dict[tuple[int, int], int] = {}
    for seed in range(many):
        pair = speculated(seed, params, wrong)
        counts[pair] = counts.get(pair, 0) + 1
    statistic, freedom = 0.0, -1
    for first, second in itertools.product(range(VOCABULARY), repeat=2):
        expected = many * law(0, 0)[first] * law(1, first)[second]
        if expected > 0:
            statistic += (counts.pop((first, second), 0) - expected) ** 2 / expected
            freedom += 1
    limit = freedom + 6 * np.sqrt(2 * freedom)
    if wrong:
        assert counts or statistic > 2 * limit
    else:
        assert not counts, "a pair that the target never draws"
        assert statistic < limit
