"""What each proposer did in a step, counted for the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.core.events import GuessRecord
from engine.speculation.base import DraftTree
from engine.speculation.controller import Choice


def depth_of(tree: DraftTree) -> int:
    """How deep the deepest guess is."""
    if tree.parents is None:
        return len(tree.tokens)
    depths: list[int] = []
    for parent in tree.parents:
        depths.append(1 + (depths[parent] if parent >= 0 else 0))
    return max(depths, default=0)


@dataclass(slots=True)
class Tally:
    """One proposer's part in a step. ``reasoning`` is what was said of the first answer that it was asked for."""

    proposed: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    draft_length: int = 0
    tree_nodes: int = 0
    guesses: int = 0
    reasoning: Callable[[], str] | None = None
    off_reason: Callable[[], str] | None = None

    def choose(self, choice: Choice) -> None:
        """It is asked for guesses, or not asked."""
        self.draft_length = max(self.draft_length, choice.depth)
        if choice.nodes:
            self.reasoning = self.reasoning or choice.line
        else:
            self.off_reason = self.off_reason or choice.line

    def count(self, tree: DraftTree, depth: int, accepted: int) -> None:
        """It guessed for one answer."""
        self.tree_nodes = max(self.tree_nodes, len(tree.tokens))
        self.guesses += len(tree.tokens)
        for depths, number in ((self.proposed, depth), (self.accepted, accepted)):
            depths.extend([0] * (depth - len(depths)))
            for place in range(number):
                depths[place] += 1

    def record(self, proposer: str) -> GuessRecord:
        """A proposer that guesses for some answers is not off, whatever became of it for others."""
        off = self.off_reason() if self.off_reason is not None and not self.draft_length else ""
        on = self.reasoning() if self.reasoning is not None else ""
        return GuessRecord(
            proposer,
            tuple(self.proposed),
            tuple(self.accepted),
            self.draft_length,
            off,
            self.tree_nodes,
            self.guesses,
            f"off: {off}" if off else on,
        )
