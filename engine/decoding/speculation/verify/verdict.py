"""The result of verifying a draft tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.decoding.speculation.base import DraftTree
from engine.protocol import Source

NO_TOKEN = -1


class Verdict(NamedTuple):
    """``nodes`` of the tree that were accepted, root first; then the ``token`` that the target draws after them.

    The token is NO_TOKEN where the target's scores are NaN or infinite.
    """

    nodes: tuple[int, ...]
    token: int
    source: Source


def children_of(tree: DraftTree, node: int) -> list[int]:
    """The nodes that follow ``node``; -1 is the last committed token."""
    if tree.parents is None:
        return [node + 1] if node + 1 < len(tree.tokens) else []
    return [child for child, parent in enumerate(tree.parents) if parent == node]


def source_after(tree: DraftTree, rejected: bool) -> Source:
    """The source of the target's own token after a tree; ``rejected``: it stands in place of rejected draft tokens."""
    if not tree.tokens:
        return "target"
    return "corrected" if rejected else "bonus"


class Nodes(NamedTuple):
    """The nodes of several trees, whose rows are concatenated: 1 + number of nodes for each tree."""

    starts: list[int]
    """The first row of each tree, that of the last committed token; node i of a tree has row start + 1 + i."""
    firsts: list[int]
    """The place of each tree's node 0 in the lists below."""
    tokens: list[int]
    above: list[int]
    """The row that judges each node: its parent's."""


def nodes_of(trees: Sequence[DraftTree]) -> Nodes:
    """The rows and indices of all nodes of ``trees``."""
    found = Nodes([], [], [], [])
    start = 0
    for tree in trees:
        found.starts.append(start)
        found.firsts.append(len(found.tokens))
        found.tokens.extend(tree.tokens)
        parents = range(-1, len(tree.tokens) - 1) if tree.parents is None else tree.parents
        found.above.extend(start + 1 + parent for parent in parents)
        start += 1 + len(tree.tokens)
    return found
