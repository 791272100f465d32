"""A proposer in the eyes of one request: what it promises, what it was measured to give, when it is tried again."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from engine.speculation.acceptance import Acceptance, expected_tokens

WORTH = 1.05
"""A gain below this does not begin: it is not worth the memory traffic and the jitter."""
_RESHAPE = 1.03
"""Another shape must be so much better than the present one."""
REVIEW_EVERY = 4
PROBE_EVERY = 32
MOST_FAILS = 5
"""Probes follow each other after 32, 64 ... 1024 steps: they double as often as this."""
PROBE_ROUNDS = 4
PROBE_DEPTH = 3
_PAIRS = 5
"""Pairs whose median is believed."""
_TRIAL = 5
"""Rounds of all requests after which a proposer is first judged."""
_PROVEN = 64
"""Rounds after which an end is no failure: it paid for long, and the text has changed."""
_SILENT = 4
"""Who had nothing to say so many times in a row is not asked until the next probe."""
_HOLD = 0.97
_SCOUT_EVERY = 8
_PROBE_SHARE = 0.01
"""Of all plain steps, what the probes of one proposer may lose, as long as they are not at their rarest."""


class Price(NamedTuple):
    """So many guesses, so deep, and the plain steps that a step with them takes (1: they are free)."""

    nodes: int
    depth: int
    steps: float


class Standing:
    """What all requests together know of a proposer."""

    def __init__(self, branches: bool) -> None:
        self.acceptance = Acceptance(branches)
        self.fails = 0
        """Probes in vain of whoever probed last."""
        self.requests = 0
        self.rounds = 0

    @property
    def unknown(self) -> bool:
        """Whether too few rounds were measured to judge it: the first ones cost more than those that follow."""
        return self.rounds < _TRIAL


class Candidate:
    """A proposer in the eyes of one request. ``fixed``: the user set its shape, and it is never switched off."""

    def __init__(self, name: str, standing: Standing, fixed: bool) -> None:
        self.name, self.standing, self.fixed = name, standing, fixed
        self.acceptance = Acceptance(standing.acceptance.branches, standing.acceptance)
        self.pairs: deque[float] = deque(maxlen=_PAIRS + 2)
        self.best: Price | None = None
        self.gain = 0.0
        standing.requests += 1
        # Where nobody could use it for long, only a few of the new requests stay ready for it.
        scout = standing.fails <= MOST_FAILS or standing.requests % _SCOUT_EVERY == 0
        self.fails = max(0, standing.fails - scout)
        self.next_probe: int | None = None
        self.probe_left = 0
        self.probing = self.barred = False
        self.measured_loss = 0.0
        self._sequences = self._barred_at = 1
        self._rounds = self._silent = 0
        self.estimated_at = 0
        self._prices: Sequence[Price] = ()

    @property
    def young(self) -> bool:
        """Whether it has just begun, so that little is known of what it costs and gives."""
        return self._rounds < REVIEW_EVERY

    @property
    def lasts(self) -> bool:
        """Whether it stays although it seems to lose: the user wants it, or nobody knows yet."""
        return self.fixed or self.standing.unknown

    @property
    def stale_at(self) -> int:
        """The step from which its estimate is too old even for one that is not asked."""
        return self.estimated_at + (REVIEW_EVERY if self.probing else PROBE_EVERY)

    @property
    def given_up(self) -> bool:
        """Whether it was probed in vain so often that it need not be kept ready."""
        return self.fails > MOST_FAILS

    def estimate(self, prices: Sequence[Price], sequences: int, step: int) -> None:
        """Find the best shape and its gain; the present shape is left only for a clear one."""
        self._sequences, self._prices = sequences, prices
        self.estimated_at = step
        if self.barred and not self._barred_at / 2 < sequences < self._barred_at * 2:
            self.unbar()  # what was measured holds for another batch size
        deepest = max((price.depth for price in prices), default=0)
        branches = self.acceptance.branches
        sizes = {price.nodes for price in prices} if branches else {0}
        tokens = {nodes: self.acceptance.tokens(nodes, deepest) for nodes in sizes}
        gains = [(tokens[price.nodes if branches else 0][price.depth] / price.steps, price) for price in prices]
        most = max(gains, default=None)
        present = self.best
        kept = next((each for each in gains if present and each[1][:2] == present[:2]), None)
        if most is not None and kept is not None and kept[0] * _RESHAPE >= most[0]:
            most = kept
        self.gain, self.best = most if most is not None else (0.0, None)
        if len(self.pairs) >= _PAIRS and median(self.pairs) > 1.0 and not self.fixed:
            self._bar(median(self.pairs))

    def unbar(self) -> None:
        """It may be chosen again."""
        self.barred, self.measured_loss = False, 0.0
        self.pairs.clear()

    def pair(self, ratio: float) -> None:
        """Seconds per token with guesses over those without, in neighbouring steps."""
        self.pairs.append(ratio)

    def observe(self, nodes: int, depth: int, accepted: int) -> None:
        """What became of a round that was to give so many guesses, so deep."""
        self.acceptance.observe(nodes, depth, accepted)
        self._rounds += 1
        self.standing.rounds += 1
        self._silent = 0
        self.probe_left -= self.probing

    def silent(self) -> None:
        """It was asked and had nothing to say: its cache may lack this text for good."""
        self._silent += 1
        self.probe_left -= self.probing
        if self._silent >= _SILENT and not self.fixed:
            self._bar(0.0)

    def leave(self, step: int) -> None:
        """It was chosen and is no longer; that is a failure if it had come back by a probe and did not stay."""
        if self._rounds >= _PROVEN:
            self.fails = 0
        elif self.next_probe is not None:
            self.failed()
        self._rounds = 0
        self.schedule(step)

    def failed(self) -> None:
        """It was tried in vain."""
        self.fails = self.standing.fails = min(self.fails + 1, MOST_FAILS + 1)

    def schedule(self, step: int) -> None:
        """The next probe: later after every failure, and late where probes are dear. Probes lie on multiples of their
        spacing, so that all requests of a batch probe together."""
        spacing, longest = PROBE_EVERY << min(self.fails, MOST_FAILS), PROBE_EVERY << MOST_FAILS
        while spacing < longest and self.probe_loss > _PROBE_SHARE * spacing:
            spacing *= 2
        self.next_probe = -(-(step + spacing // 2) // spacing) * spacing

    def begin_probe(self) -> None:
        """Old evidence counts little from now on: what made it poor may be over."""
        self.probing, self._silent = True, 0
        self.probe_left = self._probe_rounds
        self.acceptance.fade()

    def end_probe(self) -> None:
        self.probing = False
        self.estimated_at = -PROBE_EVERY
        self.unbar()

    def _bar(self, measured_loss: float) -> None:
        self.barred, self._barred_at, self.measured_loss = True, self._sequences, measured_loss

    @property
    def probe_shape(self) -> Price | None:
        """A small one: enough to see whether guesses hold, cheap where they do not."""
        if self.best is not None and self.gain >= WORTH:
            return self.best
        if not could_pay(self._prices):
            return min(self._prices, key=lambda price: price.steps, default=None)
        return min(self._prices, key=lambda price: (abs(price.depth - PROBE_DEPTH), price.nodes), default=None)

    @property
    def probe_loss(self) -> float:
        """Plain steps that a probe will probably lose."""
        shape = self.probe_shape
        if shape is None:
            return 0.0
        tokens = self.acceptance.tokens(shape.nodes, shape.depth)[-1]
        return self._probe_rounds * max(0.0, shape.steps - tokens)

    @property
    def _probe_rounds(self) -> int:
        """Many who probe together see enough in one round."""
        return max(1, PROBE_ROUNDS // self._sequences) if could_pay(self._prices) else 1


def could_pay(prices: Sequence[Price]) -> bool:
    """Whether guesses that nearly always hold would be worth any of the prices; if not, no text can change it."""
    return any(expected_tokens(_HOLD, price.depth) >= WORTH * price.steps for price in prices)
