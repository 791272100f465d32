"""Figures of one process: its memory at rest and at peak, and medians of repeated runs."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec
import psutil


class Spread(msgspec.Struct, frozen=True):
    """Distribution of repeated measurements: their median, and the quartiles ``low`` and ``high``."""

    median: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def spread(values: Sequence[float]) -> Spread:
    """The median and the quartiles."""
    if len(values) < 2:
        return Spread(values[0], values[0], values[0], 1)
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high, len(values))


def anonymous_bytes(pid: int | None = None) -> int:
    """Anonymous resident memory of a process, bytes (file pages, such as a memory-mapped checkpoint, excluded).

    None is this process. Where the system does not tell how much of it is of files, the unique set size stands in for
    it. Raises psutil.Error where there is no such process.
    """
    process = psutil.Process(pid)
    memory = process.memory_info()
    return int(memory.rss - memory.shared if hasattr(memory, "shared") else process.memory_full_info().uss)


class PeakMemory:
    """Samples :func:`anonymous_bytes` from a thread, every few milliseconds, until left or the process has ended."""

    def __init__(self, every: float = 0.004, pid: int | None = None) -> None:
        self.peak = 0
        self._every, self._pid = every, pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._sample()

    def _watch(self) -> None:
        while not self._done.wait(self._every):
            self._sample()

    def _sample(self) -> None:
        with suppress(psutil.Error):
            self.peak = max(self.peak, anonymous_bytes(self._pid))


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
