"""Threads that all run before the first request: one that cannot be had is told at the start, and no request waits for
it."""

from __future__ import annotations

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor

START_SECONDS = 60.0
WORKERS = min(32, (os.cpu_count() or 1) + 4)
"""As many as asyncio's own executor has."""


class NoThreads(Exception):  # noqa: N818 - an outcome that a person is told about
    """The system gives no more threads; the message is a sentence for a person."""


def start_all(executor: ThreadPoolExecutor, workers: int) -> ThreadPoolExecutor:
    """Start all ``workers`` threads of an executor that has none yet. Raises :class:`NoThreads`.

    An executor starts its threads as work comes. One that dies while it begins, for want of memory, takes the work with
    it: nobody hears of either.
    """
    meeting = threading.Barrier(workers + 1)
    try:
        for _ in range(workers):
            executor.submit(_meet, meeting)
        meeting.wait(START_SECONDS)
    except (RuntimeError, MemoryError, threading.BrokenBarrierError) as error:
        meeting.abort()
        executor.shutdown(wait=False, cancel_futures=True)
        text = f"The system gives the server fewer than the {workers} threads that it needs. Close other programs."
        raise NoThreads(text) from error
    return executor


def _meet(meeting: threading.Barrier) -> None:
    with contextlib.suppress(threading.BrokenBarrierError):
        meeting.wait()
