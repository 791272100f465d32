"""One process at a time: a lock on a file, which the system takes back from a process that is killed."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def lock(path: Path, refusal: Exception, wait: float = 0.0) -> Iterator[int]:
    """Hold the lock ``path`` (made if missing, and left); yields its descriptor, for children that go on if this
    process is killed. Raises ``refusal`` if another process has it for more than ``wait`` seconds."""
    with path.open("a+b") as file:
        deadline = time.monotonic() + wait
        while not _try_lock(file.fileno()):
            if time.monotonic() >= deadline:
                raise refusal
            time.sleep(min(0.1, wait))
        yield file.fileno()


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
