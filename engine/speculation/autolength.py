"""How far ahead to guess: the length whose expected gain, by measured acceptance and measured costs, is largest.

With acceptance a, a chain of length g yields (1 - a^(g+1)) / (1 - a) tokens on average (Leviathan et al. 2023) and
costs g draft passes and one target pass over g + 1 rows. Lengths cost what was measured here, not what theory says.
"""

from __future__ import annotations

import math
from typing import NamedTuple

MAX_LENGTH = 16
FIRST_LENGTH = 4
"""How far ahead to guess at most before longer steps were timed."""
WORTH = 1.05
"""A gain below this is not worth the memory traffic and the jitter."""
PROBE_EVERY = 32
PROBE_LENGTH = 3
REMEASURE_EVERY = 96
_REVIEW_EVERY = 4
_FORGET = 0.9


def expected_tokens(acceptance: float, length: int) -> float:
    """Tokens per step of a chain of ``length`` guesses, each accepted with probability ``acceptance`` if reached."""
    if acceptance >= 1.0:
        return length + 1.0
    return (1.0 - acceptance ** (length + 1)) / (1.0 - acceptance)


class Acceptance:
    """The share of guesses accepted, of those that were reached; old evidence fades."""

    def __init__(self, share: float = 0.7, weight: float = 4.0) -> None:
        """``share`` is believed as if it had been seen ``weight`` times."""
        self._accepted, self._tried = share * weight, weight

    @property
    def share(self) -> float:
        return self._accepted / self._tried

    def observe(self, proposed: int, accepted: int) -> None:
        """A chain of ``proposed`` guesses of which ``accepted`` held; those after the first failure were not tried."""
        if proposed:
            self._accepted = self._accepted * _FORGET + accepted
            self._tried = self._tried * _FORGET + min(proposed, accepted + 1)


class Costs:
    """Measured seconds: of a target step by its rows (decoding steps only), and of a draft pass by its sequences."""

    def __init__(self) -> None:
        self._target: dict[int, float] = {}
        self._draft: dict[str, float] = {}

    def observe_target(self, rows: int, seconds: float) -> None:
        known = self._target.get(rows)
        self._target[rows] = seconds if known is None else known + 0.2 * (seconds - known)

    def observe_draft(self, proposer: str, passes: int, seconds: float) -> None:
        if passes:
            each = seconds / passes
            known = self._draft.get(proposer)
            self._draft[proposer] = each if known is None else known + 0.2 * (each - known)

    def draft(self, proposer: str) -> float:
        """Seconds of one more guess for everyone; 0 until measured."""
        return self._draft.get(proposer, 0.0)

    def target(self, rows: int) -> float | None:
        """Seconds of a step of so many rows: measured, or on a line between its measured neighbours.

        Beyond the most rows measured it is that step's time, so that a length is tried before it is judged. None while
        nothing at or below ``rows`` has been measured.
        """
        exact = self._target.get(rows)
        if exact is not None:
            return exact
        below = max((known for known in self._target if known < rows), default=None)
        if below is None:
            return None
        above = min((known for known in self._target if known > rows), default=None)
        low = self._target[below]
        if above is None:
            return low
        return low + (self._target[above] - low) * (rows - below) / (above - below)

    def table(self, sequences: int, proposer: str, longest: int = MAX_LENGTH) -> list[float] | None:
        """Cost in plain steps of guessing 0..longest ahead for so many sequences; None until a plain step was timed.

        Lengths whose rows go far beyond what was ever measured are left out: they are tried step by step.
        """
        plain = self.target(sequences)
        if not plain:
            return None
        draft = self.draft(proposer)
        explored = max(FIRST_LENGTH, 2 * max(self._target) // sequences - 1)
        longest = min(longest, explored)
        return [
            max(1.0, (self.target(sequences * (length + 1)) or plain) / plain) + length * draft / plain
            for length in range(longest + 1)
        ]


class Choice(NamedTuple):
    """How many tokens to guess; when none, ``reason`` says why (empty: only for this step, to measure)."""

    length: int
    reason: str = ""


class DraftLength:
    """The length for one request. ``fixed`` above 0 is kept; 0 follows acceptance and costs.

    ``prior`` is what all requests together saw of this proposer; it is told everything too.
    """

    def __init__(self, fixed: int, prior: Acceptance) -> None:
        self.fixed, self.prior = fixed, prior
        self.acceptance = Acceptance(prior.share)
        self._steps = 0
        self._choice = Choice(0)
        self._review_at = 0

    def choose(self, table: list[float] | None) -> Choice:
        """The length for the next step; ``table`` is :meth:`Costs.table`."""
        if self.fixed:
            return Choice(self.fixed)
        if table is None:
            return Choice(0)
        self._steps += 1
        if self._steps % REMEASURE_EVERY == 0 and not self._choice.reason:
            return Choice(0)
        if self._steps >= self._review_at:
            self._choice = self._best(table)
            self._review_at = self._steps + _REVIEW_EVERY
        if self._choice.reason and self._steps % PROBE_EVERY == 0:
            self._review_at = self._steps + 1
            return Choice(PROBE_LENGTH)
        return self._choice

    def observe(self, proposed: int, accepted: int) -> None:
        self.acceptance.observe(proposed, accepted)
        self.prior.observe(proposed, accepted)

    def _best(self, table: list[float]) -> Choice:
        share = min(self.acceptance.share, 0.99)
        best, gain = 0, -math.inf
        for length in range(1, len(table)):
            value = expected_tokens(share, length) / table[length]
            if value > gain:
                best, gain = length, value
        if gain >= WORTH:
            return Choice(best)
        return Choice(
            0,
            f"guesses cost more than they save: {share:.0%} of them hold, "
            f"and guessing {best} ahead costs {table[best]:.1f} plain steps",
        )
