"""Cost of steps with draft tokens on this machine, as it is now: whole steps, compared with plain ones next to them.

A whole step is what a user waits for: forward pass, drafting, the host's part, and whatever they do to each other's
caches. So one number is compared with another of the same kind, and no correction is needed. The speed of a machine
drifts with its clock and with other programs: a step is compared with plain ones made a few steps before it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from statistics import median_low

SAMPLES = 9
"""Steps whose median counts. A busy machine delays single steps by a lot, and a mean would carry each along."""
PLAIN, PLAIN_EVERY = 2, 96
"""Plain steps to compare with, and steps with drafts after which they are made anew. A price that old is doubted if
there are newer ones: one from a busy moment would never be paid again."""
NEAR = 16
"""Steps with drafts that are compared with the plain ones before them, but for those of which nothing was known."""
_EXACT = 16


def binned(count: int) -> int:
    """Counts that are near to each other are measured together: exact up to 16, then to a sixteenth."""
    if count <= _EXACT:
        return count
    coarse = 1 << (count.bit_length() - 5)
    return (count + coarse // 2) // coarse * coarse


class Recent:
    """The last few samples of one quantity. Of an even number the lower median counts: noise only ever adds."""

    def __init__(self, samples: int = SAMPLES) -> None:
        self._samples: deque[float] = deque(maxlen=samples)
        self.median = math.nan
        self.taken_at = 0

    @property
    def count(self) -> int:
        return len(self._samples)

    def add(self, value: float, step: int = 0) -> None:
        """``step`` is when it was taken."""
        self._samples.append(value)
        self.taken_at = step
        self.median = median_low(self._samples)


class StepTimes:
    """Duration, in plain steps, of decoding steps in which one proposer made all draft tokens."""

    def __init__(self) -> None:
        self._step = 0
        self._plain: dict[int, Recent] = {}
        self._drafted: dict[str, dict[int, dict[int, Recent]]] = {}

    def take_plain(self, sequences: int, seconds: float) -> None:
        """A step of ``sequences`` requests without draft tokens."""
        self._step += 1
        known = self._plain.get(binned(sequences))
        if known is None or self._age(known) > PLAIN:
            known = self._plain[binned(sequences)] = Recent(PLAIN + 1)
        known.add(seconds, self._step)

    def take_drafted(self, name: str, sequences: int, draft_tokens: int, seconds: float) -> None:
        """A step of ``sequences`` requests with draft tokens of one proposer."""
        self._step += 1
        plain = self._plain.get(binned(sequences))
        if plain is None:
            return
        prices = self._drafted.setdefault(name, {}).setdefault(binned(sequences), {})
        price = prices.setdefault(binned(draft_tokens), Recent())
        if self._age(plain) <= NEAR or price.count < PLAIN or self._age(price) > PLAIN_EVERY:
            price.add(seconds / plain.median, self._step)

    def wants_plain(self, sequences: int) -> bool:
        """Return True if a plain step should be made now, to compare with."""
        known = self._plain.get(binned(sequences))
        return known is None or self._age(known) > PLAIN_EVERY or (known.count < PLAIN and self._age(known) == 0)

    def _age(self, known: Recent) -> int:
        return self._step - known.taken_at

    def knows(self, name: str) -> bool:
        """Return True if any step with draft tokens of this proposer was compared with plain ones."""
        return bool(self._drafted.get(name))

    def ratio(self, name: str, sequences: int, draft_tokens: int) -> float:
        """Plain steps that a step with these draft tokens takes: measured, or on a line between measured neighbours.

        What is not known of this batch size is believed to be as at the nearest one. 1 where nothing is known.
        """
        batches = self._drafted.get(name)
        if not batches:
            return 1.0
        size = binned(sequences)
        nearest = min(batches, key=lambda batch: abs(math.log(batch / size)))
        prices = batches[nearest]
        fresh = {count: price for count, price in prices.items() if self._age(price) < PLAIN_EVERY}
        return _at(_line(fresh or prices), draft_tokens if nearest == size else draft_tokens * nearest / sequences)


def _line(drafted: Mapping[int, Recent]) -> list[tuple[int, float]]:
    """Points (draft tokens, plain steps) from 0 on. Fewer draft tokens never take more: noise only ever adds."""
    line, least = [], math.inf
    for count in sorted(drafted, reverse=True):
        least = min(least, max(1.0, drafted[count].median))
        line.append((count, least))
    return [(0, 1.0), *reversed(line)]


def _at(line: list[tuple[int, float]], count: float) -> float:
    """On the line, or on its last piece made longer."""
    place = next((i for i in range(1, len(line)) if line[i][0] >= count), len(line) - 1)
    (left, low), (right, high) = line[place - 1], line[place]
    return low + (high - low) * (count - left) / (right - left)
