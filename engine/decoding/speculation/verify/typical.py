"""Typical acceptance: keeps whatever is not too unlikely. An approximation: the text's distribution changes.

A draft token x passes if p(x) > min(epsilon, delta * exp(-H(p))), H being the entropy of p in nats: the higher the
entropy, the lower the threshold. The longest path whose tokens all pass is accepted, of equally long ones the
likeliest, and the token after it is drawn from p (Cai et al. 2024, arXiv 2401.10774, section 2.3.1, with the
constants of their code). p is taken after penalties, temperature and truncation. At temperature 0 only the likeliest
token passes, and the keyed test is used instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.compute.sampling.probabilities import probabilities
from engine.compute.sampling.sampler import Draw, sample
from engine.decoding.speculation.base import DraftTree
from engine.decoding.speculation.verify.verdict import Nodes, Verdict, children_of, nodes_of, source_after

EPSILON = 0.09
DELTA = 0.3


def judge(trees: Sequence[DraftTree], logits: Tensor, draws: Sequence[Draw]) -> list[Verdict]:
    """Verdicts of trees with at least one node each; rows as in :func:`.verifier.judge_all`."""
    nodes = nodes_of(trees)
    tests = _tests(nodes, probabilities(logits, draws))
    paths = [_longest(tree, tests, first) for tree, first in zip(trees, nodes.firsts, strict=True)]
    rows = [start + 1 + (path[-1] if path else -1) for path, start in zip(paths, nodes.starts, strict=True)]
    tokens = sample(logits[rows], [draws[row] for row in rows])
    return [
        Verdict(path, token, source_after(tree, bool(children_of(tree, path[-1] if path else -1))))
        for tree, path, token in zip(trees, paths, tokens, strict=True)
    ]


def _tests(nodes: Nodes, p: Tensor) -> list[tuple[float, float]]:
    """Each node's probability and the threshold that it has to exceed. One transfer from the device."""
    above = torch.tensor(nodes.above, device=p.device)
    tokens = torch.tensor(nodes.tokens, device=p.device)
    entropy = torch.special.entr(p).sum(-1)
    bar = (DELTA * (-entropy).exp()).clamp(max=EPSILON)
    return [(share, limit) for share, limit in torch.stack((p[above, tokens], bar[above]), dim=1).tolist()]


def _longest(tree: DraftTree, tests: Sequence[tuple[float, float]], first: int) -> tuple[int, ...]:
    """Nodes of the best path, root first; ``tests[first]`` is that of the tree's node 0."""
    reached: dict[int, tuple[int, float]] = {-1: (0, 0.0)}
    for node in range(len(tree.tokens)):
        share, bar = tests[first + node]
        parent = node - 1 if tree.parents is None else tree.parents[node]
        if parent in reached and share > bar:
            depth, likelihood = reached[parent]
            reached[node] = (depth + 1, likelihood + math.log(share))
    node = max(reached, key=lambda node: reached[node])
    path: list[int] = []
    while node >= 0:
        path.append(node)
        node = node - 1 if tree.parents is None else tree.parents[node]
    return tuple(reversed(path))
