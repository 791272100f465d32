"""Choice of the draft tokens of a tree of a given size: those that are most likely to be accepted.

A node is worth the probability that it is accepted, which is the product of the probabilities along its path, and the
expected number of accepted tokens is the sum over the nodes. Factors are at most 1, so no node is worth more than its
parent, and the best tree of any size is simply the most valuable nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple


class DraftNode(NamedTuple):
    """A candidate draft token: ``token`` after node ``parent`` of the same list (-1: the last committed token).

    A parent comes before its children. ``confidence`` 0..1: how probable the token is, given its parent.
    """

    token: int
    parent: int
    confidence: float


class BestTree(NamedTuple):
    """``tokens`` and ``parents`` as in :class:`engine.decoding.speculation.base.DraftTree`: None where it is a chain.

    ``nodes[i]`` is the index of node i in the list of candidates.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...] | None
    nodes: tuple[int, ...]


def best_tree(nodes: Sequence[DraftNode], size: int) -> BestTree:
    """The ``size`` candidates with the highest products of confidences along their paths, most probable first.

    This is the rerank of Li et al. 2024 (arXiv 2406.16858, section 4.2). Of equals the earlier candidate goes first,
    so that a parent always comes before its children and every beginning of the result is a tree too.
    """
    worth: list[float] = []
    for node in nodes:
        above = worth[node.parent] if node.parent >= 0 else 1.0
        # Rounding may lift a softmax above 1, and a child must not overtake its parent.
        worth.append(above * min(1.0, node.confidence))
    kept = sorted(range(len(nodes)), key=lambda place: (-worth[place], place))[: max(0, size)]
    place_of = {place: new for new, place in enumerate(kept)}
    parents = tuple(place_of[nodes[place].parent] if nodes[place].parent >= 0 else -1 for place in kept)
    return BestTree(tuple(nodes[place].token for place in kept), without_branches(parents), tuple(kept))


def without_branches(parents: tuple[int, ...]) -> tuple[int, ...] | None:
    """The same parents, None where they are those of a chain: chains need no tree mask."""
    return None if all(parent == place - 1 for place, parent in enumerate(parents)) else parents


def static_tree(accuracies: Sequence[Sequence[float]], size: int) -> list[tuple[int, ...]]:
    """The tree for heads of which ``accuracies[head][rank]`` 0..1 says how often that choice of theirs is right.

    Nodes are paths of ranks: (0, 2) is the third choice of the second head after the first choice of the first head.
    The most valuable comes first and a parent comes before its children, so that the first n nodes are the best tree
    of n nodes. Paths that were never right are left out, so there may be fewer than ``size``. Cai et al. 2024
    (arXiv 2401.10774, section 2.3.3) grow their trees like this, taking heads to be right independently of each other.
    """
    orders = [sorted(range(len(row)), key=lambda rank, row=row: (-row[rank], rank)) for row in accuracies]  # type: ignore[misc]
    waiting: list[tuple[float, tuple[int, ...], int, float]] = []

    def wait(path: tuple[int, ...], place: int, worth: float) -> None:
        """Let the child of ``path`` with the ``place``-th best rank wait for its turn; the path is worth ``worth``."""
        head = len(path)
        if head < len(orders) and place < len(orders[head]):
            value = worth * accuracies[head][orders[head][place]]
            if value > 0.0:
                heapq.heappush(waiting, (-value, path, place, worth))

    found: list[tuple[int, ...]] = []
    wait((), 0, 1.0)
    while waiting and len(found) < size:
        value, path, place, worth = heapq.heappop(waiting)
        child = (*path, orders[len(path)][place])
        found.append(child)
        wait(child, 0, -value)
        # Siblings come in the order of their worth, so the next one need not wait before this one was taken.
        wait(path, place + 1, worth)
    return found
