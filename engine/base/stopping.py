"""A request to stop, for work in a thread: whoever waits or loops below asks, without being handed anything."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar


class Stopped(Exception):  # noqa: N818 - somebody asked for it, it is no error
    """The work was asked to stop; the message is a sentence for a person."""


class Stop:
    """Set once, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakers: list[Callable[[], object]] = []
        self._event = threading.Event()
        self.is_set, self.wait = self._event.is_set, self._event.wait

    def set(self) -> None:
        with self._lock:
            self._event.set()
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()

    def check(self) -> None:
        """Raises :class:`Stopped` once it is set."""
        if self.is_set():
            raise Stopped("It was stopped before its end. Start it again if you want it.")

    @contextlib.contextmanager
    def waking(self, wake: Callable[[], object]) -> Iterator[None]:
        """Have ``wake`` called within the block as soon as it is set, at once if it is."""
        with self._lock:
            now = self._event.is_set()
            if not now:
                self._wakers.append(wake)
        if now:
            wake()
        try:
            yield
        finally:
            with self._lock, contextlib.suppress(ValueError):
                self._wakers.remove(wake)


_NEVER = Stop()
_current: ContextVar[Stop] = ContextVar("stop", default=_NEVER)


def current() -> Stop:
    """The request to stop of the work that this thread does; one that nobody sets if there is none."""
    return _current.get()


@contextlib.contextmanager
def stoppable(stop: Stop) -> Iterator[None]:
    """Have ``stop`` end the work of the block."""
    token = _current.set(stop)
    try:
        yield
    finally:
        _current.reset(token)
