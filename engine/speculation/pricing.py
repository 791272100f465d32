"""What guessing would cost the present batch: a price for every shape that a proposer may be asked for."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from engine.core.options import RequestOptions
from engine.speculation.acceptance import SIZES
from engine.speculation.base import Proposer
from engine.speculation.candidate import Price
from engine.speculation.costs import Costs, binned
from engine.speculation.neighbours import CROWD, Neighbours

MAX_LENGTH = 16
MAX_DEPTH = 8
"""How deep trees are at most: a path that long rarely holds."""
FIRST_NODES = 4
FIRST_ROWS = 16
"""Guesses of one answer and of all, at most, before longer steps were timed; one each is always allowed."""


def is_fixed(branches: bool, options: RequestOptions) -> bool:
    """Whether the user set the shape, or a part of it that matters: then nothing is switched off."""
    return options.draft_length > 0 or (branches and options.tree_nodes > 0)


@runtime_checkable
class Bounded(Protocol):
    """A proposer that guesses so many tokens ahead at most: Medusa has a head for each."""

    deepest: int


def shapes(proposer: Proposer, options: RequestOptions) -> list[tuple[int, int]]:
    """(nodes, depth) to choose from; the user's own are kept, 0 is automatic."""
    length, nodes = options.draft_length, options.tree_nodes
    if not proposer.branches:
        return [(depth, depth) for depth in ((length,) if length else range(1, MAX_LENGTH + 1))]
    deepest = proposer.deepest if isinstance(proposer, Bounded) else MAX_LENGTH
    depths = (min(length, deepest),) if length else range(1, min(MAX_DEPTH, deepest) + 1)
    if nodes:
        return [(nodes, depth) for depth in depths if length or depth <= nodes]
    return [(size, depth) for depth in depths for size in SIZES if size >= depth]


class Prices:
    """The prices of one step, in which so many ``sequences`` run; ``guessing`` of them will probably guess.

    All of these are taken to ask for the same. What their guesses add to the step is shared by them alone, so that a
    request whose guesses hold need not give up because most others' do not.
    """

    def __init__(self, costs: Costs, neighbours: dict[int, Neighbours]) -> None:
        self._costs, self._neighbours = costs, neighbours
        self._known: dict[tuple[str, int, int], list[Price]] = {}
        self.sequences = self._guessing = 1

    def begin(self, sequences: int, guessing: int) -> None:
        # What a few add among many drowns in the noise of a step: they are taken for a crowd.
        self.sequences, self._guessing = sequences, min(max(guessing, -(-sequences // CROWD)), sequences)
        self._known.clear()

    @property
    def neighbours(self) -> Neighbours:
        """Of the present batch size."""
        size = binned(self.sequences)
        found = self._neighbours.get(size)
        if found is None:
            found = self._neighbours[size] = Neighbours(size)
        return found

    def of(self, proposer: Proposer, options: RequestOptions) -> list[Price]:
        """Prices of everything that may be asked; none until a plain step was timed, unless the user set the shape.

        Automatic shapes whose rows go far beyond what was ever measured are left out: they are tried step by step.
        """
        key = proposer.name, options.draft_length, options.tree_nodes
        if key not in self._known:
            fixed = is_fixed(proposer.branches, options)
            first = max(self._guessing, min(self._guessing * FIRST_NODES, FIRST_ROWS))
            most = max(self.sequences + first, 2 * self._costs.most_rows)
            prices = []
            wanted = shapes(proposer, options)
            plain, correction = self._costs.target(self.sequences), self.neighbours.correction(proposer.name)
            rows = {nodes: self.sequences + self._guessing * nodes for nodes, _ in wanted}
            checked = {nodes: self._costs.target(count) for nodes, count in rows.items()}
            depths = {depth for _, depth in wanted}
            proposing = {depth: self._costs.proposing(proposer.name, self._guessing, depth) for depth in depths}
            for nodes, depth in wanted:
                if not fixed and (plain is None or rows[nodes] > most):
                    continue
                # Where no plain step is ever made, proposers are compared by what they add to checking.
                seconds = checked[nodes] or plain
                base = plain or seconds
                whole = (seconds + proposing[depth]) / base if base and seconds else 1.0
                added = (whole * correction - 1.0) * self.sequences / self._guessing
                prices.append(Price(nodes, depth, max(1.0, 1.0 + added)))
            self._known[key] = prices
        return self._known[key]

    def steps(self, name: str, sequences: int, guessing: int, rows: int, depth: int) -> float | None:
        """Plain steps that a step of so many rows takes, guesses made ``depth`` deep included; None: not known."""
        plain, checked = self._costs.target(sequences), self._costs.target(rows)
        if not plain or checked is None:
            return None
        return (checked + self._costs.proposing(name, guessing, depth)) / plain
