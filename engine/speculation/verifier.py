"""The one verifier (M5): go down the tree as long as a child carries the token that the target would have drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.protocol import Source
from engine.speculation.base import DraftTree


class Verdict(NamedTuple):
    """``nodes`` of the tree that were accepted, root first; then the ``token`` that the target draws after them."""

    nodes: tuple[int, ...]
    token: int
    source: Source


def verify(tree: DraftTree, targets: Sequence[int]) -> Verdict:
    """``targets[0]`` is what the target draws after the last committed token, ``targets[1 + i]`` after node i.

    The accepted tokens followed by ``token`` are exactly what plain decoding would have drawn, because the noise of a
    draw depends on its place alone. ``token`` is a correction when guesses ended in disagreement, a bonus when the
    path reached a leaf, and plain when there was no guess.
    """
    if not tree.tokens:
        return Verdict((), targets[0], "target")
    nodes: list[int] = []
    here = -1
    while True:
        drawn = targets[here + 1]
        children = _children(tree, here)
        match = next((node for node in children if tree.tokens[node] == drawn), None)
        if match is None:
            return Verdict(tuple(nodes), drawn, "corrected" if children else "bonus")
        nodes.append(match)
        here = match


def _children(tree: DraftTree, node: int) -> list[int]:
    if tree.parents is None:
        return [node + 1] if node + 1 < len(tree.tokens) else []
    return [child for child, parent in enumerate(tree.parents) if parent == node]
