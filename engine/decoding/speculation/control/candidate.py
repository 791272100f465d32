"""A proposer in the eyes of one request: whether it drafts, in which shape, and when it is tried again.

A trial costs steps in which drafts do not pay. What a failed one cost decides when the next is made, so that all trials
together take no more than a set share of the steps: what costs little is tried often, what is hopeless rarely.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine.decoding.speculation.control.lines import Price
from engine.decoding.speculation.control.stats import AcceptanceStats

GAIN = 1.03
"""Least speed-up that is worth the memory traffic and the jitter."""
TRY_DEPTH = 3
"""Tokens drafted to find out what a proposer costs and how much of it is accepted."""
ROUNDS = 4
"""Rounds of a trial, and rounds after which a shape is chosen anew."""
TRIALS = 0.015
"""The share of steps that failed trials may cost, those of all candidates together."""
LONGEST_WAIT = 512
"""Steps from a failed trial to the next, however much it cost. Of 512 and 1,024, bundled model: noise 0.96 and 0.96 of
plain decoding, talk 1.09 and 0.97, code 1.69 and 1.62."""


class Outcome(NamedTuple):
    """Result of a round: ``nodes`` draft tokens down to ``depth`` were asked for, ``accepted`` in a line were right.

    A candidate that had nothing to say (not ``drafted``) had nothing accepted, but lost nothing. ``rival`` is the
    speed-up that the request would have had without it.
    """

    nodes: int
    depth: int
    accepted: int
    drafted: bool
    rival: float


Prices = Callable[[], Sequence[Price]]
"""Present price of each shape."""


class Standing:
    """Acceptance of a proposer over all requests, and ``try_at``, the step of its next trial."""

    def __init__(self, branches: bool) -> None:
        self.acceptance = AcceptanceStats(branches)
        self.try_at = 0


class Candidate:
    """``fixed``: the user set its shape, and it is never switched off. ``share``: its part of all trials.

    ``follows``: it has what it needs to draft in this text.
    """

    def __init__(self, name: str, standing: Standing, fixed: bool, share: float, follows: bool = True) -> None:
        self.name, self.standing, self.fixed, self.follows = name, standing, fixed, follows
        self.acceptance = AcceptanceStats(standing.acceptance.branches, standing.acceptance)
        self.on = fixed
        self.price = Price(0, 0, 1.0)
        self._share = TRIALS * share
        self._trial = self._rounds = 0
        self._known = False
        self._lost = 0.0

    @property
    def trying(self) -> bool:
        return self._trial > 0

    @property
    def gain(self) -> float:
        """The speed-up that its shape promises."""
        return self._gain(self.price)

    def due(self, step: int) -> bool:
        """Return True if it is time to try the candidate."""
        return self.follows and not self.on and not self._trial and step >= self.standing.try_at

    def begin(self, prices: Sequence[Price], known: bool) -> None:
        """Use it where it promises to gain by what others saw, else try it. ``known``: its price was measured."""
        self.price, self._rounds, self._lost = max(prices, key=self._gain), 0, 0.0
        self.on = self.fixed or (known and self.gain >= GAIN)
        if not self.on:
            short = [price for price in prices if price.depth <= TRY_DEPTH] or prices[:1]
            self.price, self._trial, self._known = max(short, key=self._gain), ROUNDS, known

    def learn(self, outcome: Outcome, step: int, prices: Prices) -> None:
        """A round is over."""
        self.acceptance.observe(*outcome[:3])
        trying = self._trial > 0
        self._rounds += 1
        if not trying and self._rounds > ROUNDS and self._rounds % ROUNDS:
            return  # a new shape is looked at after each of its first rounds: its price was an estimate
        found = prices()
        self.price = next((price for price in found if price[:2] == self.price[:2]), self.price)
        best = max(found, key=self._gain)
        if outcome.drafted:
            self._lost += self.price.steps - (1 + outcome.accepted) / max(1.0, outcome.rival)
        if trying and not self._decided(outcome.accepted, self._gain(best)):
            return
        if trying or self._gain(best) > GAIN * self.gain:
            self.price, self._rounds = best, 0
        self.on = self.fixed or self.gain >= (GAIN if trying else 1.0)
        if self.on:
            self._lost, self.standing.try_at = 0.0, min(self.standing.try_at, step)
        else:
            wait = min(max(math.ceil(self._lost / self._share), ROUNDS), LONGEST_WAIT)
            self.standing.try_at = max(self.standing.try_at, step + wait)

    def _decided(self, accepted: int, promise: float) -> bool:
        """Count a round of a trial; whether it was the last.

        One that lost is enough where a loss was expected. A price that was not known before is believed after two,
        since a busy machine delays single steps.
        """
        self._trial -= 1
        if 1 + accepted < self.price.steps and promise < 1.0 and (self._known or self._rounds > 1):
            self._trial = 0
        return self._trial == 0

    def _gain(self, price: Price) -> float:
        return self.acceptance.tokens(price.nodes, price.depth) / price.steps
