"""Share of the machine's processor that other programs take while something is measured."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable

import psutil

_KEPT_S = 10.0
"""Seconds that the present load of other programs is an average of."""
_LEAST_S = 0.2
"""Seconds of processor time below which the counters' ticks are too coarse."""


class OtherPrograms:
    """Measures what other programs took since it was made; ``parent`` is none of them."""

    def __init__(self, parent: psutil.Process | None = None) -> None:
        self._parent = parent
        self._began = _times(parent)

    def share(self) -> float:
        """The share (0..1) of the time of all cores that neither this process nor idling took."""
        total, idle, own = (now - then for now, then in zip(_times(self._parent), self._began, strict=True))
        return max(0.0, total - idle - own) / total if total > _LEAST_S else 0.0


class RecentPrograms:
    """Load of other programs over the last seconds, from readings that are taken now and then. Not thread-safe.

    The window, which is the parent of an engine that it started, is no other program.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._readings: deque[tuple[float, OtherPrograms]] = deque()
        self._parent = psutil.Process().parent()

    def look(self) -> None:
        """Take a reading, unless the last one is fresh."""
        now = self._clock()
        if not self._readings or now - self._readings[-1][0] >= 1.0:
            self._readings.append((now, OtherPrograms(self._parent)))
        while len(self._readings) > 1 and self._readings[1][0] <= now - _KEPT_S:
            self._readings.popleft()

    def cores(self) -> float:
        """Cores that other programs kept busy on average since the oldest reading that is kept; 0 before there is
        one."""
        return self._readings[0][1].share() * (psutil.cpu_count() or 1) if self._readings else 0.0


def _times(parent: psutil.Process | None = None) -> tuple[float, float, float]:
    """Seconds since the start: of all cores, of it idle, and of this process, with ``parent``'s."""
    all_cores = psutil.cpu_times()._asdict()
    for counted in ("guest", "guest_nice"):  # within user and nice already
        all_cores.pop(counted, None)
    own = [psutil.Process().cpu_times()]
    with contextlib.suppress(psutil.Error):
        own += [parent.cpu_times()] if parent is not None else []
    spent = sum(times.user + times.system for times in own)
    return sum(all_cores.values()), all_cores["idle"] + all_cores.get("iowait", 0.0), spent
