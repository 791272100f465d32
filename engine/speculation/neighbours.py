"""Steps with guesses beside plain steps: what guessing really costs, whatever is believed of its parts.

Steps of one batch size are gathered in segments that begin and end with plain steps. Seconds are only compared within
a segment, because a machine that gets slower makes everything slower; and they are winsorised, because other programs
delay single steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from statistics import median, median_low
from typing import NamedTuple

FIRST_SPACING = 8
LAST_SPACING = 64
"""Steps with guesses after which two plain ones are taken, if none came by themselves."""
_LEAST = 4
_APART = 64
_CAP = 1.5
CROWD = 4
"""What fewer than one in so many add to a step is not told from noise."""


class Round(NamedTuple):
    """A request's part in a step: it guessed, and gained ``tokens``. ``pair`` takes what its segment says of it."""

    tokens: int
    pair: Callable[[float], None]


class Guessed(NamedTuple):
    """A step with guesses. ``proposer`` is the one that made them all, or empty; ``steps()`` how many plain steps it
    should take by the costs of its parts, as they are known when it is asked."""

    seconds: float
    proposer: str
    steps: Callable[[], float | None]
    rounds: Sequence[Round]


class Neighbours:
    """The present segment of one batch size, and what the last ones said.

    ``correction(proposer)`` is how much longer its steps take than their parts: the median of three segments. A
    :class:`Round` hears seconds per token with guesses over seconds per token without: above 1 guessing loses.
    """

    def __init__(self, sequences: int) -> None:
        self._sequences = sequences
        self._plain: deque[float] = deque(maxlen=8)
        self._guessed: list[Guessed] = []
        self._since = 0
        self._spacing = FIRST_SPACING
        self._last = 0
        self._corrections: dict[str, deque[float]] = {}

    @property
    def due(self) -> bool:
        """Whether a plain step is needed."""
        return not self._plain or (len(self._guessed) >= self._spacing and self._since < 2)

    @property
    def plain(self) -> float | None:
        """Seconds of a whole plain step lately."""
        return median_low(self._plain) if self._plain else None

    def correction(self, proposer: str) -> float:
        known = self._corrections.get(proposer)
        return min(4.0, max(0.5, median_low(known))) if known else 1.0

    def take_plain(self, step: int, seconds: float) -> None:
        """A plain step was made; it ends the segment if enough of both kinds are in it."""
        self._stay(step)
        self._plain.append(seconds)
        self._since += 1
        if self._since >= 2:
            if len(self._guessed) >= _LEAST:
                self._close()
            if not self._guessed:
                self._since = 0

    def take_guessed(self, step: int, guessed: Guessed) -> None:
        """A step with guesses was made."""
        self._stay(step)
        if not self._guessed:
            self._since = 0
        self._guessed.append(guessed)

    def _stay(self, step: int) -> None:
        """Steps of long ago are no neighbours."""
        if step - self._last > _APART:
            self._plain.clear()
            self._guessed.clear()
            self._since, self._spacing = 0, FIRST_SPACING
        self._last = step

    def _close(self) -> None:
        plain = median_low(self._plain)
        ratios = [guessed.seconds / plain for guessed in self._guessed]
        cap = _CAP * median(ratios)
        ratios = [min(ratio, cap) for ratio in ratios]
        self._correct(ratios)
        self._pair(ratios)
        if len(self._guessed) >= self._spacing:
            self._spacing = min(LAST_SPACING, 2 * self._spacing)
        self._guessed.clear()
        while len(self._plain) > 2:
            self._plain.popleft()

    def _correct(self, ratios: Sequence[float]) -> None:
        by_proposer: dict[str, list[tuple[float, float]]] = {}
        for guessed, ratio in zip(self._guessed, ratios, strict=True):
            believed = guessed.steps() if guessed.proposer else None
            if believed:
                by_proposer.setdefault(guessed.proposer, []).append((ratio, believed))
        for proposer, both in by_proposer.items():
            if len(both) >= _LEAST - 1:
                found = sum(ratio for ratio, _ in both) / sum(believed for _, believed in both)
                self._corrections.setdefault(proposer, deque(maxlen=3)).append(found)

    def _pair(self, ratios: Sequence[float]) -> None:
        heard: dict[Callable[[float], None], list[tuple[float, int]]] = {}
        for guessed, ratio in zip(self._guessed, ratios, strict=True):
            crowd = self._sequences / len(guessed.rounds) if guessed.rounds else CROWD + 1
            if crowd > CROWD:
                continue  # a few among many hardly show in the time of a step
            # What guessing adds to the step is the work of those who guess.
            for each in guessed.rounds:
                heard.setdefault(each.pair, []).append((1.0 + (ratio - 1.0) * crowd, each.tokens))
        for pair, both in heard.items():
            if len(both) >= _LEAST - 1:
                pair(sum(steps for steps, _ in both) / sum(tokens for _, tokens in both))
