"""The ratio test (rejection sampling): the text keeps the target's distribution.

A draft token x sampled from q is accepted with probability min(1, p(x) / q(x)); after a rejection the target's token
comes from norm(max(p - q, 0)), after full acceptance from p (Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023,
arXiv 2302.01318). Draft tokens that were not sampled are tried one after the other: a child c is accepted with
probability p(c), else c is removed from p, which is renormalised (Miao et al. 2024, SpecInfer, arXiv 2305.09781). That
is exact for any tree, provided that nothing of the tree depends on the noise used here; hence the salts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.compute.sampling import noise
from engine.compute.sampling.probabilities import draw_from, probabilities
from engine.compute.sampling.sampler import Draw
from engine.decoding.speculation.base import DraftTree
from engine.decoding.speculation.verify.verdict import Nodes, Verdict, children_of, nodes_of, source_after


class _Test(NamedTuple):
    """The values that decide whether one node is accepted; all float64."""

    p: float
    q: float
    """The draft's probability of a sampled token; 1 and unused for tokens that were not sampled."""
    mass: float
    """The sum of p over the vocabulary: 1 up to rounding."""
    chance: float
    """Uniform between 0 and 1."""


class _Walk(NamedTuple):
    """Accepted nodes, root first, and the children of the last of them, all rejected."""

    nodes: tuple[int, ...]
    rejected: list[int]


class _Drawn(NamedTuple):
    """The trees' q, concatenated to [D, V], and the row of each node in it, -1 where the node was not sampled."""

    q: Tensor | None
    rows: list[int]


def judge(trees: Sequence[DraftTree], logits: Tensor, draws: Sequence[Draw]) -> list[Verdict]:
    """Verdicts of trees with at least one node each; rows as in :func:`.verifier.judge_all`."""
    nodes = nodes_of(trees)
    p = probabilities(logits, draws)
    drawn = _drawn(trees, p.device)
    tests = _tests(nodes, p, drawn, draws)
    walks = [_walk(tree, tests, first) for tree, first in zip(trees, nodes.firsts, strict=True)]
    tokens = _last_tokens(walks, nodes, p, drawn, draws)
    return [
        Verdict(walk.nodes, token, source_after(tree, bool(walk.rejected)))
        for tree, walk, token in zip(trees, walks, tokens, strict=True)
    ]


def _drawn(trees: Sequence[DraftTree], device: torch.device) -> _Drawn:
    parts: list[Tensor] = []
    rows: list[int] = []
    held = 0
    for tree in trees:
        if tree.q is None:
            rows.extend([-1] * len(tree.tokens))
            continue
        assert tree.parents is None, "sampled drafts are a chain"
        parts.append(tree.q[: len(tree.tokens)].to(device))
        rows.extend(range(held, held + len(tree.tokens)))
        held += len(tree.tokens)
    return _Drawn(torch.cat(parts) if parts else None, rows)


def _tests(nodes: Nodes, p: Tensor, drawn: _Drawn, draws: Sequence[Draw]) -> list[_Test]:
    """One test per node; p [L, V] of all rows. One transfer from the device."""
    above = torch.tensor(nodes.above, device=p.device)
    tokens = torch.tensor(nodes.tokens, device=p.device)
    q = torch.ones(len(nodes.tokens), dtype=torch.float64, device=p.device)
    if drawn.q is not None:
        rows = torch.tensor(drawn.rows, device=p.device)
        q = torch.where(rows >= 0, drawn.q[rows.clamp(min=0), tokens].double(), q)
    keys = noise.keys([draws[row].key for row in nodes.above], p.device, noise.TEST)
    chance = noise.uniform(keys, tokens.unsqueeze(1), p.shape[1]).squeeze(1)
    mass = p.sum(-1, dtype=torch.float64)[above]
    columns = torch.stack((p[above, tokens].double(), q, mass, chance), dim=1)
    return [_Test(*row) for row in columns.tolist()]


def _walk(tree: DraftTree, tests: Sequence[_Test], first: int) -> _Walk:
    nodes: list[int] = []
    here = -1
    while True:
        children = children_of(tree, here)
        accepted = _accepted(tree, children, tests, first)
        if accepted is None:
            return _Walk(tuple(nodes), children)
        nodes.append(accepted)
        here = accepted


def _accepted(tree: DraftTree, children: Sequence[int], tests: Sequence[_Test], first: int) -> int | None:
    """The first child that is accepted, None if all are rejected; ``tests[first]`` is that of the tree's node 0."""
    gone = 0.0
    tried: set[int] = set()
    for child in children:
        test, token = tests[first + child], tree.tokens[child]
        if token in tried:
            continue
        # p without the children tried before has the mass that they leave.
        bar = max(0.0, test.mass - gone) if tree.q is None else test.q
        if test.chance * bar < test.p:
            return child
        gone += test.p
        tried.add(token)
    return None


def _last_tokens(walks: Sequence[_Walk], nodes: Nodes, p: Tensor, drawn: _Drawn, draws: Sequence[Draw]) -> list[int]:
    """The token after each walk: drawn from p at a leaf, else from the residual of p after the rejected children."""
    rows = [start + 1 + (walk.nodes[-1] if walk.nodes else -1) for walk, start in zip(walks, nodes.starts, strict=True)]
    tokens = [0] * len(walks)
    leaves = [place for place, walk in enumerate(walks) if not walk.rejected]
    forks = [place for place, walk in enumerate(walks) if walk.rejected]
    if leaves:
        found = draw_from(p[[rows[place] for place in leaves]], [draws[rows[place]] for place in leaves], noise.BONUS)
        for place, token in zip(leaves, found.tolist(), strict=True):
            tokens[place] = token
    if forks:
        rejected = [[nodes.firsts[place] + child for child in walks[place].rejected] for place in forks]
        left = _residual(p[[rows[place] for place in forks]], rejected, nodes.tokens, drawn)
        found = draw_from(left, [draws[rows[place]] for place in forks], noise.RESIDUAL)
        for place, token in zip(forks, found.tolist(), strict=True):
            tokens[place] = token
    return tokens


def _residual(p: Tensor, rejected: Sequence[Sequence[int]], tokens: Sequence[int], drawn: _Drawn) -> Tensor:
    """The residual [F, V] of p [F, V], not normalised, after the nodes ``rejected`` in each row."""
    left = p.clone()
    certain = [(row, tokens[node]) for row, some in enumerate(rejected) for node in some if drawn.rows[node] < 0]
    if certain:
        at, gone = zip(*certain, strict=True)
        left[list(at), list(gone)] = 0.0
    by_q = [(row, drawn.rows[node]) for row, some in enumerate(rejected) for node in some if drawn.rows[node] >= 0]
    if by_q and drawn.q is not None:
        at, theirs = zip(*by_q, strict=True)
        left[list(at)] = (left[list(at)] - drawn.q[list(theirs)]).clamp_(min=0.0)
    # The residual is empty only where rounding rejected a token that held all of the mass: then p itself is drawn from.
    return torch.where(left.sum(-1, keepdim=True) > 0.0, left, p)
