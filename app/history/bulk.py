"""Writing of thousands of chats on a thread of its own, in short transactions between those of the window."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence

from app.history.statements import Statement, storable

PAUSE_S = 0.002
"""Between two transactions, so that what the window writes gets its turn."""


class BulkWriter:
    """``connect`` opens the history's file, ``check`` raises OSError where that is not there any more; ``lock`` is held
    by whoever writes. Methods raise sqlite3.Error and OSError; they are for one thread."""

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], check: Callable[[], object], lock: threading.Lock
    ) -> None:
        self._check, self._lock = check, lock
        self._connection = connect()

    def read(self, sql: str, *values: object) -> list[tuple]:
        return self._connection.execute(sql, values).fetchall()

    def write(self, statements: Sequence[Statement]) -> None:
        """All of them or none."""
        self._check()
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                for sql, values in statements:
                    self._connection.execute(sql, tuple(map(storable, values)))
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    with contextlib.suppress(sqlite3.Error):
                        self._connection.execute("ROLLBACK")
                raise
        time.sleep(PAUSE_S)

    def close(self) -> None:
        self._connection.close()
