"""Acceptance of draft tokens by depth, and the number of tokens that a round may be expected to give.

Chains: each depth has a chance of its own, given that everything above it was accepted. Trees: the same for each class
of sizes, since more alternatives at a depth are accepted more often.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.decoding.speculation.base import MAX_DEPTH, DraftTree
from engine.decoding.telemetry.records import DraftRecord

SIZES = (1, 2, 4, 8, 16, 32, 63)
"""Sizes of trees that are told apart, in draft tokens; a tree between two of them counts as the larger."""
PRIOR = 0.7
"""The share that is believed of a proposer of which nothing was seen."""
PRIOR_ROUNDS = 3.0
"""Rounds that what is believed counts for."""
HOPE = 0.85
"""A size of trees that was never tried is believed to fail so much less often than the size below it."""
FORGET = 0.95
"""Evidence fades by so much with every round, so that about 20 count."""


def expected_tokens(acceptance: float, length: int) -> float:
    """Tokens per step of a chain of ``length`` draft tokens, each accepted with probability ``acceptance`` if reached.

    (1 - a^(g+1)) / (1 - a), Leviathan et al. 2023.
    """
    if acceptance >= 1.0:
        return length + 1.0
    return (1.0 - acceptance ** (length + 1)) / (1.0 - acceptance)


class ByDepth:
    """The share of rounds that accepted a draft token at each depth, of those that accepted the one above it.

    ``prior()`` gives the shares believed without evidence; evidence of the depth above counts there too, so that depths
    never reached look like those before them.
    """

    def __init__(self, prior: Callable[[], list[float]]) -> None:
        self._prior = prior
        self._kept: list[float] = []
        self._tried: list[float] = []

    def shares(self) -> list[float]:
        """The chances at depths 1 to MAX_DEPTH, each given that the depth above was accepted."""
        found: list[float] = []
        for depth, believed in enumerate(self._prior()):
            if found:
                believed = 0.25 * believed + 0.75 * found[-1]
            kept, tried = (self._kept[depth], self._tried[depth]) if depth < len(self._tried) else (0.0, 0.0)
            found.append((kept + PRIOR_ROUNDS * believed) / (tried + PRIOR_ROUNDS))
        return found

    def observe(self, depth: int, accepted: int) -> None:
        """A round was to draft to ``depth``, and ``accepted`` draft tokens, one below the other, were right."""
        missing = depth - len(self._tried)
        self._kept += [0.0] * missing
        self._tried += [0.0] * missing
        for place in range(min(depth, accepted + 1)):
            self._kept[place] = self._kept[place] * FORGET + (place < accepted)
            self._tried[place] = self._tried[place] * FORGET + 1.0


class AcceptanceStats:
    """Acceptance of one proposer: in one request, with that of all requests together as its ``prior``, or in all of
    them."""

    def __init__(self, branches: bool, prior: AcceptanceStats | None = None) -> None:
        self.branches, self._prior = branches, prior
        self._classes: dict[int, ByDepth] = {}
        self._known: dict[int, list[float]] = {}

    def tokens(self, nodes: int, depth: int) -> float:
        """Tokens expected of a round that drafts ``nodes`` tokens, ``depth`` deep; the model's own is one of them."""
        size = self._class(nodes)
        known = self._known.get(size)
        if known is None:
            known, reached = [1.0], 1.0
            for share in self._of(size).shares():
                reached *= share
                known.append(known[-1] + reached)
            self._known[size] = known
        return known[depth]

    def share(self, nodes: int, depth: int) -> float:
        """The share of draft tokens that are accepted, of those whose forerunners were."""
        return (self.tokens(nodes, depth) - 1.0) / self.tokens(nodes, depth - 1) if depth else 0.0

    def observe(self, nodes: int, depth: int, accepted: int) -> None:
        """Asked for ``nodes`` draft tokens down to ``depth``, it made some, of which ``accepted`` in a line were right.

        What it was asked for and did not draft was not accepted either.
        """
        self._of(self._class(nodes)).observe(depth, accepted)
        self._known.clear()
        if self._prior is not None:
            self._prior.observe(nodes, depth, accepted)

    def _class(self, nodes: int) -> int:
        return min(bisect_left(SIZES, nodes), len(SIZES) - 1) if self.branches else 0

    def _of(self, size: int) -> ByDepth:
        found = self._classes.get(size)
        if found is None:
            found = self._classes[size] = ByDepth(lambda: self._believed(size))
        return found

    def _believed(self, size: int) -> list[float]:
        """The shares without evidence: what others saw of this size, or a little more than the size below gives."""
        if self._prior is not None:
            return self._prior._of(size).shares()
        if size == 0:
            return [PRIOR] * MAX_DEPTH
        return [1.0 - HOPE * (1.0 - share) for share in self._of(size - 1).shares()]


def depth_of(tree: DraftTree) -> int:
    """Depth of the deepest draft token, 0 without any."""
    if tree.parents is None:
        return len(tree.tokens)
    depths: list[int] = []
    for parent in tree.parents:
        depths.append(1 + (depths[parent] if parent >= 0 else 0))
    return max(depths, default=0)


@dataclass(slots=True)
class Tally:
    """One proposer's part in a step. The lines are what was said of the first answer that it was asked for, or not."""

    proposed: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    draft_length: int = 0
    tree_nodes: int = 0
    draft_tokens: int = 0
    on_line: Callable[[], str] | None = None
    off_line: Callable[[], str] | None = None

    def count(self, tree: DraftTree, accepted: int) -> None:
        """It drafted for one answer."""
        depth = depth_of(tree)
        self.tree_nodes = max(self.tree_nodes, len(tree.tokens))
        self.draft_tokens += len(tree.tokens)
        for depths, number in ((self.proposed, depth), (self.accepted, accepted)):
            depths.extend([0] * (depth - len(depths)))
            for place in range(number):
                depths[place] += 1

    def record(self, proposer: str) -> DraftRecord:
        """A proposer that drafts for some answers is not off, whatever became of it for others."""
        off = self.off_line() if self.off_line is not None and not self.draft_length else ""
        line = self.on_line() if self.on_line is not None else ""
        return DraftRecord(
            proposer,
            tuple(self.proposed),
            tuple(self.accepted),
            self.draft_length,
            off,
            self.tree_nodes,
            self.draft_tokens,
            f"off: {off}" if off else line,
        )
