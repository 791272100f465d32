"""What other programs ask over HTTP, as the window watches it, and the port that is open to them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from engine.base import stopping
from engine.protocol.serving import HttpRequest, HttpRequests

MOST = 100
"""Requests that are remembered; more where more are in progress."""


class RecordedVisit(Protocol):
    """A request that may be in progress still."""

    def record(self) -> HttpRequest: ...


class Visits:
    """Requests of one server. They come and go on the event loop's thread, and are watched from others."""

    def __init__(self, connections: Callable[[], int] = lambda: 0) -> None:
        """``connections`` counts those that are open, and may be called from any thread."""
        self._connections = connections
        self._changed = threading.Condition()
        self._version = 0
        self._open: dict[RecordedVisit, None] = {}
        self._ended: deque[HttpRequest] = deque(maxlen=MOST)
        self._total = self._prompt = self._generated = 0
        self.limited = 0
        """Requests that the limits of their keys refused."""

    def begin(self, visit: RecordedVisit) -> None:
        with self._changed:
            self._open[visit] = None
            self._total += 1
        self.tell()

    def end(self, visit: RecordedVisit) -> None:
        with self._changed:
            del self._open[visit]
            record = visit.record()
            self._ended.append(record)
            self.limited += record.status == 429
            self._prompt += record.prompt_tokens
            self._generated += record.generated_tokens
        self.tell()

    def tell(self) -> None:
        """Something changed, or whoever waits for that is to stop."""
        with self._changed:
            self._version += 1
            self._changed.notify_all()

    def wait(self, seen: int, stop: stopping.Stop) -> int:
        """Wait for a change after version ``seen``; the version now. Raises :class:`engine.base.stopping.Stopped`."""
        with stop.waking(self.tell), self._changed:
            self._changed.wait_for(lambda: self._version != seen)
            version = self._version
        stop.check()
        return version

    def now(self) -> HttpRequests:
        with self._changed:
            records = [*self._ended, *(visit.record() for visit in self._open)]
            newest = sorted(records, key=lambda each: (each.running, each.began), reverse=True)
            return HttpRequests(
                total=self._total,
                running=len(self._open),
                connections=self._connections(),
                prompt_tokens=self._prompt,
                generated_tokens=self._generated,
                last=newest[: max(MOST, len(self._open))],
            )


class Serving:
    """``open_port``: listens on a port of this machine as well, 0 for none; returns the address. Raises
    :class:`engine.services.operations.OperationFailed`."""

    def __init__(self, open_port: Callable[[int], str], visits: Visits) -> None:
        self.open_port, self.visits = open_port, visits
