"""The thread that writes the history. What cannot be written is kept in order and tried again, whatever the cause."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""Between two attempts at what failed, unless another write comes before."""
HELD_RETRY_S = 0.05
"""The same where another program has the file locked, which SQLite says at once."""
HELD_PATIENCE_S = 1.5
"""Seconds that a lock of another program is waited for without a word."""
PATIENCE_S = 2.0
"""The most that the window waits for a slow disk."""
CLOSE_S = 3.0
"""The same when the program ends."""
_REFUSED = (
    *(sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError),
    *(ValueError, OverflowError),
)
"""Errors of one write that say nothing of those behind it."""


class WriteJob(NamedTuple):
    """Statements that are all in the file or none: (SQL, its values)."""

    statements: tuple[tuple[str, tuple], ...]
    chats: frozenset[str] = frozenset()
    """Chats of which it writes something that a person saw."""
    told: tuple[str, ...] = ()
    """The chats to announce."""
    key: str = ""
    """A later job with this key takes the place of one that still waits; "": none does."""
    last: bool = False
    """True if it waits at the end of the queue all the same."""


class HistoryWriter:
    """Writes jobs in the order in which they came, on a thread of its own.

    ``connect`` opens the file, without SQLite's own patience. ``restored`` makes sure before each write that the file
    is still there, and says whether it had to be written anew; it raises as writing does. ``told`` is called with each
    chat to announce, ``failed`` with the cause when writing begins to fail or fails for another reason, ``recovered``
    once everything is written; all on the writer's thread.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        restored: Callable[[], bool],
        told: Callable[[str], None],
        failed: Callable[[Exception], None],
        recovered: Callable[[], None],
    ) -> None:
        self._connect, self._restored = connect, restored
        self._told, self._failed, self._recovered = told, failed, recovered
        self._connection: sqlite3.Connection | None = None
        self.lock = threading.Lock()
        """Held by whoever of this process writes to the file."""
        self._state = threading.Condition()
        self._jobs: list[WriteJob] = []
        self._fresh = self._closing = False
        self._stuck = False
        """True if the last attempt failed, or took longer than the window waits."""
        self._held_since = 0.0
        self._said = ""
        self._announced: dict[int, WriteJob] = {}
        """By their ids, those that wait."""
        self._thread = threading.Thread(target=self._run, name="kvasir-history", daemon=True)
        self._thread.start()

    def put(self, job: WriteJob) -> None:
        with self._state:
            place = next((at for at, one in enumerate(self._jobs) if job.key and one.key == job.key), None)
            if place is not None and not job.last:
                self._jobs[place] = job
            else:
                if place is not None:
                    del self._jobs[place]
                self._jobs.append(job)
            self._fresh = True
            self._state.notify_all()

    def waiting(self) -> list[WriteJob]:
        """The jobs that are not in the file, in order."""
        with self._state:
            return list(self._jobs)

    def flush(self, patience_s: float = PATIENCE_S) -> bool:
        """Wait until everything is in the file, at most ``patience_s``, and not at all where that fails already.

        Returns whether it is.
        """
        with self._state:
            self._state.wait_for(lambda: not self._jobs or self._stuck, patience_s)
            self._stuck = bool(self._jobs)
            return not self._jobs

    def close(self) -> list[WriteJob]:
        """Try once more, then end. Returns what could not be written."""
        with self._state:
            self._closing = True
            self._state.notify_all()
        self._thread.join()
        return self._jobs

    # --- on the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            with self._state:
                self._state.wait_for(lambda: self._fresh or self._closing, self._pause())
                self._fresh = False
            self._attempt()
        until = time.monotonic() + CLOSE_S
        while self._held_since and self._jobs and time.monotonic() < until:
            time.sleep(HELD_RETRY_S)
            self._attempt()
        self._disconnect()

    def _pause(self) -> float | None:
        if not self._jobs:
            return None
        return HELD_RETRY_S if self._held_since else RETRY_S

    def _attempt(self) -> None:
        """Write what waits, in order, up to the first failure; what is refused for its own sake lets others pass."""
        at, error = 0, None
        while (job := self._at(at)) is not None:
            try:
                self._write(job)
            except _REFUSED as refused:
                error, at = refused, at + 1
            except Exception as failure:  # no memory, say, or another version has taken the file: the thread goes on
                self._fail(failure)
                return
            else:
                self._drop(job)
                at, error = 0, None  # what was refused may have wanted this
        self._held_since = 0.0
        if error is not None:
            self._fail(error)
        else:
            self._settle()

    def _at(self, place: int) -> WriteJob | None:
        with self._state:
            return self._jobs[place] if place < len(self._jobs) else None

    def _drop(self, job: WriteJob) -> None:
        with self._state:  # a later one may have taken its place meanwhile
            place = next((at for at, one in enumerate(self._jobs) if one is job), None)
            if place is not None:
                del self._jobs[place]
        self._tell(job)

    def _tell(self, job: WriteJob) -> None:
        """Announce what it changes; what waits for the file is shown already (app/history/unsaved.py)."""
        if id(job) not in self._announced:
            for chat in job.told:
                self._told(chat)

    def _write(self, job: WriteJob) -> None:
        if self._restored():
            self._disconnect()  # from the file that is gone
        if self._connection is None:
            self._connection = self._connect()
        connection = self._connection
        with self.lock:
            connection.execute("BEGIN IMMEDIATE")
            try:
                for sql, values in job.statements:
                    connection.execute(sql, values)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    with contextlib.suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                raise

    def _fail(self, error: Exception) -> None:
        held = is_held(error)
        now = time.monotonic()
        self._held_since = (self._held_since or now) if held else 0.0
        if not held and not isinstance(error, _REFUSED) and not is_full(error):
            self._disconnect()  # some failures last as long as the connection
        with self._state:
            self._stuck = True
            waiting = list(self._jobs)
            self._state.notify_all()
        for job in waiting:
            self._tell(job)
        self._announced = {id(job): job for job in waiting}
        if held and not self._said and now - self._held_since < HELD_PATIENCE_S:
            return
        if words_of(error) != self._said:
            self._said = words_of(error)
            log.error("the history could not be written: %s", self._said)
            self._failed(error)

    def _settle(self) -> None:
        with self._state:
            if self._jobs:
                return
            self._stuck = False
            self._state.notify_all()
        self._announced = {}
        if self._said:
            self._said = ""
            log.info("the history is written again")
            self._recovered()

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


def words_of(error: Exception) -> str:
    """Message of the error, or its type's name if it has none."""
    return str(error) or type(error).__name__


def is_held(error: Exception) -> bool:
    """True if another program has the file locked."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_full(error: Exception) -> bool:
    """True if the disk is full."""
    return _code(error) == sqlite3.SQLITE_FULL


def _code(error: Exception) -> int:
    return getattr(error, "sqlite_errorcode", -1) & 0xFF
