"""Figures of one process: its memory at rest and at peak, and medians of repeated runs."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psutil


def anonymous_bytes() -> int:
    """Anonymous resident memory of this process, bytes (file pages, such as a memory-mapped checkpoint, excluded).

    Where the system does not tell how much of it is of files, the unique set size stands in for it.
    """
    process = psutil.Process()
    memory = process.memory_info()
    return int(memory.rss - memory.shared if hasattr(memory, "shared") else process.memory_full_info().uss)


class PeakMemory:
    """Samples :func:`anonymous_bytes` from a thread, every few milliseconds, until left."""

    def __init__(self, every: float = 0.004) -> None:
        self.peak = 0
        self._every = every
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self.peak = max(self.peak, anonymous_bytes())

    def _watch(self) -> None:
        while not self._done.wait(self._every):
            self.peak = max(self.peak, anonymous_bytes())


class Stopwatch:
    """``seconds`` of a :func:`timed` block, once it has been left."""

    seconds = 0.0


@contextmanager
def timed() -> Iterator[Stopwatch]:
    """Time a block on the monotonic clock."""
    watch, start = Stopwatch(), time.perf_counter()
    try:
        yield watch
    finally:
        watch.seconds = time.perf_counter() - start


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Median of the ratios ours/theirs taken pair by pair, so that a drift of the machine's speed cancels."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
