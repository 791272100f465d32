"""The last measurement of memory, so that the windows of one engine do not each take their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from engine.protocol import MemoryByOwner

MEMORY_SECONDS = 0.5
"""How long a measurement of memory is used before it is taken again."""


class MemoryReading:
    """Used in the event loop's thread; the measurement itself runs in another, since it may block."""

    def __init__(self) -> None:
        self._last: MemoryByOwner | None = None
        self._taken_at = 0.0
        self._lock = asyncio.Lock()

    async def get(self, prepare: Callable[[], Callable[[], MemoryByOwner]]) -> MemoryByOwner:
        """The last measurement, or a new one: ``prepare()`` runs in the loop and returns what measures."""
        async with self._lock:
            if self._last is None or time.monotonic() - self._taken_at > MEMORY_SECONDS:
                self._last = await asyncio.to_thread(prepare())
                self._taken_at = time.monotonic()
            return self._last

    def forget(self) -> None:
        """Measure again next time: the model has changed."""
        self._last = None
