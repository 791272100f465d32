"""Rate of a download and the time it will still take."""

from __future__ import annotations

from collections import deque

SPAN_S = 8.0
"""The rate is that of the last seconds: a pause at the start must not colour the rest."""
LEAST_S = 1.0


class DownloadPace:
    """Fed with bytes done and the clock's seconds."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def add(self, done: int, now: float) -> None:
        """``done`` that goes back begins anew (another file, another stage)."""
        if self._points and done < self._points[-1][1]:
            self._points.clear()
        self._points.append((now, done))
        while len(self._points) > 2 and now - self._points[1][0] >= SPAN_S:
            self._points.popleft()

    def clear(self) -> None:
        self._points.clear()

    @property
    def rate(self) -> float | None:
        """Bytes a second; None until a second has passed."""
        if len(self._points) < 2:
            return None
        (began, first), (ended, last) = self._points[0], self._points[-1]
        return (last - first) / (ended - began) if ended - began >= LEAST_S else None

    def left(self, total: int) -> float | None:
        """Seconds until ``total`` bytes; None where that cannot be said."""
        rate = self.rate
        return max(0, total - self._points[-1][1]) / rate if rate and total else None
