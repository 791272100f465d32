"""Who guesses for one request and how far: whatever promises the most tokens a second, nobody included.

A choice is worth the tokens that a round is expected to give (Leviathan et al. 2023, by measured acceptance) over what
a step with it takes, in plain steps. What loses against plain decoding, by that estimate or by the median of measured
pairs, is not asked again but for short probes, ever more rarely.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from engine.speculation.candidate import PROBE_EVERY, REVIEW_EVERY, WORTH, Candidate, Price
from engine.speculation.reasons import off_line, on_line

LEAVE = 1.0
"""A gain below this ends."""
SWITCH = 1.05
"""Another proposer must be so much better than the present one."""


class Choice(NamedTuple):
    """What to ask of whom in this step; no ``nodes``: nothing, and ``line()`` says why. ``gain``: over plain steps."""

    name: str = ""
    nodes: int = 0
    depth: int = 0
    gain: float = 1.0
    line: Callable[[], str] = str
    probe: bool = False


Prices = Callable[[Candidate], Sequence[Price]]


class Chooser:
    """Chooses among ``candidates`` for one request, step by step. Steps are counted by the pilot, for all requests."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.candidates = {candidate.name: candidate for candidate in candidates}
        self.chosen: Candidate | None = None
        self._review_at = 0
        self._begun = False
        self._choice = Choice()

    def choose(self, step: int, sequences: int, prices: Prices, allowance: float) -> Choice:
        """The choice for this step. ``allowance`` is how many plain steps may be lost to find out about a new text."""
        ended = [one for one in self.candidates.values() if one.probing and one.probe_left <= 0]
        for one in ended:
            one.end_probe()
        reviewed = bool(ended) or step >= self._review_at
        if reviewed:
            self._review(step, sequences, prices)
            self._review_at = step + (1 if self.chosen is not None and self.chosen.young else REVIEW_EVERY)
        for one in ended:
            if one is not self.chosen:
                one.failed()
                one.schedule(step)
        if not self._begun and any(one.best for one in self.candidates.values()):
            self._begun = True
            self._begin(step, allowance)
        if reviewed and self.chosen is None:
            self._choice = self._off(step)
        return self._probe(step) or self._choice

    def _review(self, step: int, sequences: int, prices: Prices) -> None:
        present = self.chosen
        for one in self.candidates.values():
            # Who is not asked changes little; it is looked at again before it is preferred.
            if one is present or step >= one.stale_at or one.best is None:
                one.estimate(prices(one), sequences, step)
        best = self._best()
        while best is not None and best.estimated_at < step:
            best.estimate(prices(best), sequences, step)
            best = self._best()
        if present is not None and (present.barred or (present.gain < LEAVE and not present.lasts)):
            present.leave(step)
            present = None
        if best is not None:
            if present is None and (best.fixed or best.gain >= WORTH):
                present = best
            elif present is not None and best.gain > present.gain * SWITCH:
                present.leave(step)
                present = best
        self.chosen = present
        if present is not None and present.best is not None:
            nodes, depth, _ = present.best
            if present.gain >= WORTH:
                present.standing.fails = 0
            line = partial(on_line, present.name, present.acceptance, present.best, present.fixed)
            self._choice = Choice(present.name, nodes, depth, present.gain, line)
        for one in self.candidates.values():
            if one is not present and one.next_probe is None:
                one.schedule(step)

    def _best(self) -> Candidate | None:
        able = (one for one in self.candidates.values() if not one.barred and one.best)
        return max(able, key=lambda one: one.gain, default=None)

    def _begin(self, step: int, allowance: float) -> None:
        """A new request inherits how rarely its proposers are probed, but its text may be another: if it can be
        afforded, they are tried soon."""
        for one in self.candidates.values():
            if one is not self.chosen and one.best is not None and one.probe_loss <= allowance:
                one.next_probe = (step // PROBE_EVERY + 1) * PROBE_EVERY
                allowance -= one.probe_loss

    def _probe(self, step: int) -> Choice | None:
        for one in self.candidates.values():
            if one is self.chosen:
                one.probing = False
                continue
            if not one.probing and one.next_probe is not None and step >= one.next_probe:
                one.begin_probe()
            if one.probing:
                shape = one.probe_shape
                if shape is not None:
                    line = partial(on_line, one.name, one.acceptance, shape, probe=True)
                    return Choice(one.name, shape.nodes, shape.depth, one.gain, line, probe=True)
        return None

    def _off(self, step: int) -> Choice:
        """Nobody guesses; the line speaks of the best of them."""
        best = max((one for one in self.candidates.values() if one.best), key=lambda one: one.gain, default=None)
        if best is None or best.best is None:
            return Choice()
        soonest = min(one.next_probe for one in self.candidates.values() if one.next_probe is not None)
        line = partial(off_line, best.acceptance, best.best, best.measured_loss, max(0, soonest - step))
        return Choice(best.name, line=line)
