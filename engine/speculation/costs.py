"""What steps and proposers cost on this machine, as it is now: medians of the last few measurements.

A busy machine delays single steps by a lot. A mean would carry each of these along for a while, and a length that is
tried rarely would be judged by the one time that it was unlucky.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median_low

KEPT = 9
OLD = 512
"""A measurement goes so many steps after it was made, once there is a newer one."""
_EXACT = 16


def binned(count: int) -> int:
    """Counts that are near to each other are measured together: exact up to 16, then to a sixteenth."""
    if count <= _EXACT:
        return count
    coarse = 1 << (count.bit_length() - 5)
    return (count + coarse // 2) // coarse * coarse


class Recent:
    """The last few samples of one quantity."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float]] = deque(maxlen=KEPT)
        self.median = math.nan

    def add(self, step: int, value: float) -> None:
        """A sample taken at ``step``. Of an even number of samples the lower median counts: noise only ever adds."""
        while self._samples and self._samples[0][0] < step - OLD:
            self._samples.popleft()
        self._samples.append((step, value))
        self.median = median_low([value for _, value in self._samples])


class Costs:
    """Measured seconds: of a target step by its rows (decoding steps only), and of proposing by depth."""

    def __init__(self) -> None:
        self._step = 0
        self._target: dict[int, Recent] = {}
        self._line: list[tuple[int, float]] | None = None
        self._proposing: dict[str, dict[int, dict[int, Recent]]] = {}
        self._passes: dict[str, dict[int, int]] = {}

    def observe_target(self, rows: int, seconds: float) -> None:
        self._step += 1
        self._target.setdefault(binned(rows), Recent()).add(self._step, seconds)
        self._line = None

    def observe_proposer(self, name: str, sequences: int, depth: int, passes: int, seconds: float) -> None:
        """Guessing so ``depth`` tokens deep for so many ``sequences`` took that many forward passes and seconds."""
        depths = self._proposing.setdefault(name, {}).setdefault(binned(sequences), {})
        depths.setdefault(depth, Recent()).add(self._step, seconds)
        self._passes.setdefault(name, {})[depth] = passes

    @property
    def most_rows(self) -> int:
        """Of a target step that was measured."""
        return max(self._target, default=0)

    def target(self, rows: int) -> float | None:
        """Seconds of a step of so many rows: measured, or on a line between its measured neighbours.

        More rows never take less, so that what was measured for more bounds what is believed of fewer. Beyond the most
        rows measured it is that step's time, so that a length is tried before it is judged. None while nothing at or
        below ``rows`` has been measured.
        """
        low: tuple[int, float] | None = None
        for known, seconds in self._lines():
            if known == rows:
                return seconds
            if known > rows:
                if low is None:
                    return seconds if known == binned(rows) else None
                return low[1] + (seconds - low[1]) * (rows - low[0]) / (known - low[0])
            low = known, seconds
        return low[1] if low is not None else None

    def proposing(self, name: str, sequences: int, depth: int) -> float:
        """Seconds of guessing ``depth`` deep for about so many ``sequences`` in one go; 0 until measured."""
        batches = self._proposing.get(name)
        if not batches or not depth:
            return 0.0
        depths = batches[min(batches, key=lambda known: abs(math.log(known / sequences)))]
        below = max((known for known in depths if known <= depth), default=None)
        above = min((known for known in depths if known >= depth), default=None)
        if below is not None and above is not None:
            low, high = depths[below].median, depths[above].median
            return low if above == below else low + (high - low) * (depth - below) / (above - below)
        nearest = below if below is not None else above
        assert nearest is not None
        # Heads that guess all depths in one pass take no longer for more of them.
        scale = 1.0 if nearest > 1 and self._passes[name][nearest] <= 1 else depth / nearest
        return depths[nearest].median * scale

    def _lines(self) -> list[tuple[int, float]]:
        if self._line is None:
            line: list[tuple[int, float]] = []
            least = math.inf
            for rows in sorted(self._target, reverse=True):
                least = min(least, self._target[rows].median)
                line.append((rows, least))
            self._line = line[::-1]
        return self._line
