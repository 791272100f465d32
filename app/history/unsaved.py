"""Reads of the history while something of it is not in the file yet."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Sequence

from app.history import cells
from app.history.writer import WriteJob

log = logging.getLogger(__name__)


class UnsavedCopy:
    """The history as it would be with everything written: a copy of ``file`` in memory, while anything waits."""

    def __init__(self, file: sqlite3.Connection) -> None:
        self._file = file
        self._copy: sqlite3.Connection | None = None
        self._applied: dict[int, WriteJob] = {}
        """By their ids."""

    def reader(self, waiting: Sequence[WriteJob]) -> sqlite3.Connection:
        """Connection to read what a person saw: ``file`` itself if nothing waits, or if a copy of it cannot be made."""
        if not waiting:
            self.close()
            return self._file
        if self._copy is None:
            try:
                self._copy = _in_memory(self._file)
            except (sqlite3.Error, MemoryError):
                log.exception("what is not saved cannot be shown")
                return self._file
        for job in waiting:
            if id(job) not in self._applied:
                self._applied[id(job)] = job
                _apply(self._copy, job)
        return self._copy

    def close(self) -> None:
        if self._copy is not None:
            self._copy.close()
            self._copy, self._applied = None, {}


def _in_memory(file: sqlite3.Connection) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", isolation_level=None)
    try:
        copy.text_factory = cells.text
        file.backup(copy)
        copy.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        copy.close()
        raise
    return copy


def _apply(copy: sqlite3.Connection, job: WriteJob) -> None:
    """Some of it may be in the file already, which changes nothing; what the file refuses is not to be seen."""
    copy.execute("BEGIN")
    with contextlib.suppress(sqlite3.Error, ValueError):
        for sql, values in job.statements:
            copy.execute(sql, values)
    copy.execute("COMMIT")
