"""The observed accuracy of each choice of each Medusa head, and the draft tree that follows from it."""

from __future__ import annotations

from collections.abc import Sequence

from engine.decoding.speculation.proposers.trees import static_tree

RANKS = 10
"""The number of top choices considered per head, as in the paper's trees."""
LARGEST = 126
"""Nodes of a fitted tree: twice what a step may hold, because a request's truncation removes some of them."""
REFIT_EVERY = 16
"""Observed steps after which a tree is fitted again, which takes some 0.2 ms."""
_FIRST_HEAD = (0.60, 0.09, 0.05, 0.04, 0.03, 0.02, 0.015, 0.01, 0.008, 0.007)
_DEEPER = 0.8


def default_accuracies(heads: int) -> list[list[float]]:
    """The accuracies assumed for heads without measured ones, until their own draft tokens have been verified.

    For the first head the authors of Medusa report 60 % for the best choice and over 80 % for the best five
    (https://sites.google.com/view/medusa-llm). How that spreads over single choices, and that each further head is
    right four fifths as often as the one before it, is an assumption made here.
    """
    return [[share * _DEEPER**head for share in _FIRST_HEAD] for head in range(heads)]


class HeadAccuracy:
    """Hit rates by head and rank, given that the draft tokens before were right; old observations lose weight."""

    def __init__(self, prior: Sequence[Sequence[float]], forget: float, weight: float) -> None:
        """``prior`` [head][rank] counts as ``weight`` observations; each new one multiplies the old counts by
        ``forget``."""
        self._forget = forget
        self._tried = [weight] * len(prior)
        self._hits = [[share * weight for share in row] for row in prior]
        self._trees: dict[int, list[tuple[int, ...]]] = {}
        self._seen = 0

    @property
    def shares(self) -> list[list[float]]:
        """[head][rank], each 0..1."""
        return [[hits / tried for hits in row] for row, tried in zip(self._hits, self._tried, strict=True)]

    def observe(self, ranks: Sequence[int | None]) -> None:
        """Count a step: ``ranks[head]`` is the rank of the right token among the head's choices, None if not there."""
        for head, right in enumerate(ranks):
            self._tried[head] = self._tried[head] * self._forget + 1.0
            row = self._hits[head]
            for rank in range(len(row)):
                row[rank] = row[rank] * self._forget + (rank == right)
        self._seen += 1
        if self._seen % REFIT_EVERY == 0:
            self._trees.clear()

    def tree(self, depth: int) -> list[tuple[int, ...]]:
        """Paths of ranks, at most ``depth`` long, the most valuable first (``trees.py``)."""
        if depth not in self._trees:
            self._trees[depth] = static_tree(self.shares[:depth], LARGEST)
        return self._trees[depth]
