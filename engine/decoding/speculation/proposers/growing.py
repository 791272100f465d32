"""Growth of one request's draft, depth by depth: a chain drawn token by token, or a dynamic tree (Li et al. 2024,
arXiv 2406.16858).

Both have ``leaves``: the nodes that the head has just read, whose children are chosen from its logits. The rows that
the head reads next are a :class:`Reading`; their keys and values lie after the entries of the text and are overwritten
later, those of accepted nodes too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.compute.batch import SequenceRows
from engine.compute.sampling.sampler import Draw
from engine.decoding.request import Request
from engine.decoding.speculation.base import NO_DRAFT, DraftTree
from engine.decoding.speculation.proposers.head_texts import HeadText
from engine.decoding.speculation.proposers.trees import DraftNode, best_tree


class Reading(NamedTuple):
    """Rows for the head, with their input ``states [T, hidden_size]``; the last ``fresh`` rows are leaves."""

    rows: SequenceRows
    states: Tensor
    fresh: int


class GrowingChain:
    """A chain of draft tokens, each drawn from the head's distribution in the way that the acceptance mode requires."""

    def __init__(self, text: HeadText, length: int, output: Tensor, eos_ids: Collection[int]) -> None:
        """``output [hidden_size]`` is the head's for the last entry of the text."""
        self.text, self.length, self._eos_ids = text, length, eos_ids
        self.tokens: list[int] = []
        self._shares: list[Tensor] = []
        self._output = output

    @property
    def request(self) -> Request:
        return self.text.request

    @property
    def outputs(self) -> list[Tensor]:
        """The head's outputs ``[hidden_size]`` for the leaves."""
        return [self._output] if self.leaves else []

    @property
    def leaves(self) -> list[tuple[int, ...]]:
        """Their paths, from the last known token on; none when it is grown."""
        ended = bool(self.tokens) and self.tokens[-1] in self._eos_ids
        return [] if ended or len(self.tokens) == self.length else [tuple(self.tokens)]

    def add(self, token: int, shares: Tensor | None) -> None:
        """Append a draft token and, for the ratio test, the probabilities ``[V]`` that it was sampled from."""
        self.tokens.append(token)
        if shares is not None:
            self._shares.append(shares)

    def reading(self) -> Reading:
        """One row, the last draft token: the arena already holds the draft tokens before it."""
        start = self.text.held + len(self.tokens) - 1
        rows = SequenceRows(self.tokens[-1:], start, self.request.pages, policy=self.text.policy)
        return Reading(rows, self._output[None], 1)

    def read(self, outputs: Tensor) -> None:
        """Take the head's output ``[1, hidden_size]`` for the row of :meth:`reading`."""
        self._output = outputs[0]

    def tree(self, proposer: str) -> DraftTree:
        """The chain as a draft tree; empty where it has no tokens."""
        if not self.tokens:
            return NO_DRAFT
        q = torch.stack(self._shares) if self._shares else None
        return DraftTree(tuple(self.tokens), q=q, proposer=proposer)


class GrowingTree:
    """At each depth the ``breadth`` most probable nodes get children; the ``size`` best of all nodes form the tree.

    (Li et al. 2024, arXiv 2406.16858, sections 4.1 and 4.2.) A node is worth the product of the confidences on its
    path, which no descendant exceeds. So a node outside the best ``size`` cannot have a descendant among them, and the
    head does not read it: a pass reads at most ``size`` nodes, ancestors included.
    """

    def __init__(
        self, text: HeadText, size: int, depth: int, breadth: int, output: Tensor, eos_ids: Collection[int]
    ) -> None:
        """``output`` as for :class:`GrowingChain`. No node is deeper than ``depth``."""
        self.text, self.size, self.depth, self._eos_ids = text, size, depth, eos_ids
        self.breadth = min(breadth, size)
        self.nodes: list[DraftNode] = []
        self._worth: list[float] = []
        self._depths: list[int] = []
        self._outputs: dict[int, Tensor] = {-1: output}
        self._leaves = [-1]

    @property
    def request(self) -> Request:
        return self.text.request

    @property
    def outputs(self) -> list[Tensor]:
        """The head's outputs ``[hidden_size]`` for the leaves."""
        return [self._outputs[leaf] for leaf in self._leaves]

    @property
    def leaves(self) -> list[tuple[int, ...]]:
        """Their paths, from the last known token on; none when it is grown."""
        return [self._path(leaf) for leaf in self._leaves]

    def add(self, children: Sequence[Sequence[tuple[int, float]]]) -> None:
        """Add the children of each leaf, tokens with confidences 0..1; the best of them become the next leaves."""
        first = len(self.nodes)
        for leaf, found in zip(self._leaves, children, strict=True):
            worth, depth = (self._worth[leaf], self._depths[leaf]) if leaf >= 0 else (1.0, 0)
            for token, confidence in found:
                self.nodes.append(DraftNode(token, leaf, confidence))
                self._worth.append(worth * min(1.0, confidence))
                self._depths.append(depth + 1)
        kept = best_tree(self.nodes, self.size).nodes
        fresh = [node for node in kept if node >= first and self._grows(node)]
        # Best first, as the rerank orders them; rows in the order of nodes, so that parents come before children.
        self._leaves = sorted(fresh[: self.breadth])

    def reading(self) -> Reading:
        """The leaves and their ancestors, which are read again, since a tree mask covers only the rows of one pass.

        There are few ancestors, and reading them again costs less than a cache of branches would.
        """
        wanted = {-1}
        for leaf in self._leaves:
            node = leaf
            while node not in wanted:
                wanted.add(node)
                node = self.nodes[node].parent
        reads = sorted(wanted - {-1})
        row_of = {node: row for row, node in enumerate(reads)} | {-1: -1}
        nodes = [self.nodes[node] for node in reads]
        rows = SequenceRows(
            [node.token for node in nodes],
            self.text.held,
            self.request.pages,
            parents=[row_of[node.parent] for node in nodes],
            policy=self.text.policy,
        )
        return Reading(rows, torch.stack([self._outputs[node.parent] for node in nodes]), len(self._leaves))

    def read(self, outputs: Tensor) -> None:
        """Take the head's outputs ``[leaves, hidden_size]``."""
        self._outputs.update(zip(self._leaves, outputs, strict=True))

    def tree(self, proposer: str) -> DraftTree:
        """The best nodes found, as a draft tree."""
        best = best_tree(self.nodes, self.size)
        return DraftTree(best.tokens, best.parents, proposer=proposer) if best.tokens else NO_DRAFT

    def _grows(self, node: int) -> bool:
        return self._depths[node] < self.depth and self.nodes[node].token not in self._eos_ids

    def _path(self, node: int) -> tuple[int, ...]:
        found: list[int] = []
        while node >= 0:
            found.append(self.nodes[node].token)
            node = self.nodes[node].parent
        return tuple(reversed(found))


def draw_of(request: Request, path: Sequence[int]) -> Draw:
    """The draw of the token after a path of draft tokens."""
    return Draw(request.params, request.answer, request.tokens, path, request.history)
