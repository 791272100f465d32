"""The file of the history: opened, read, written and mended, whatever happens to it."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.history import backups, cells, writer
from app.history.bulk import BulkWriter
from app.history.cells import Bad
from app.history.schema import HistoryUnusableError, Tell
from app.history.statements import storable
from app.history.unsaved import UnsavedCopy
from app.history.upgrade import is_earlier, refuse_later, upgrade
from app.history.writer import HistoryWriter, WriteJob
from app.language import tr

log = logging.getLogger(__name__)

_KNOWN_AS = {
    "sampling": tr("the sampling settings"),
    "stats": tr("the statistics of an answer"),
    "spans": tr("the highlights of drafted tokens"),
    "content": tr("the text of a message"),
    "title": tr("the title"),
    "system_prompt": tr("the system prompt"),
    "thinking": tr("the thinking"),
    "adapter": tr("the name of the adapter"),
    "servers": tr("the choice of tools"),
    "parts": tr("the calls of tools"),
    "remote": tr("the model of another server"),
    "left_out": tr("the choice of the folder's documents"),
    "folder": tr("the folder"),
    "tags": tr("the tags"),
    "created": tr("a date"),
    "updated": tr("the date of the last use"),
}
"""Names of the columns as a person knows them."""


Work = Callable[[Tell], None]
Upgrading = Callable[[Work], None]


class HistoryFile(QObject):
    """The history file at ``path`` (":memory:" is not supported: two connections share it).

    A damaged file is renamed and a new one begun; :attr:`notice` then holds the sentence for people.
    Answers that were streaming when the program last ended are marked interrupted, deleted chats are removed for good.
    A file of an earlier version is copied and brought up to date (app/history/upgrade.py), inside ``upgrading``, which
    calls what it is given, on any thread, and returns after that, or raises what it raised.
    What cannot be written waits in order and is tried again; until then reading shows it all the same.
    Raises HistoryUnusableError (a later version wrote it, or it or its folder cannot be written).
    Signals come from the writer thread: connect QObjects.
    """

    changed = Signal(str)
    """The id of a chat whose row (title, order, place, existence) changed; "" where a folder did."""
    failed = Signal(str)
    """Writes fail, until :attr:`recovered`; a sentence for people."""
    unreadable = Signal(str)
    """A part could not be read, or the file was removed and is written again; a sentence for people."""
    recovered = Signal()
    """Everything is written after some of it had failed."""

    def __init__(self, path: Path, parent: QObject | None = None, upgrading: Upgrading | None = None) -> None:
        super().__init__(parent)
        self._path = path
        self._upgrading: Upgrading = upgrading or (lambda work: work(lambda _: None))
        self.notice = ""
        self.removed: list[str] = []
        """The ids of chats that were removed for good when this file was opened."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._reader = self._open_or_set_aside()
        self._bad: set[Bad] = set()
        """Cells that were said to be unreadable."""
        self._copy: Path | None = None
        """The copy of the file from before any of them was replaced in this run."""
        self._unsaved = UnsavedCopy(self._reader)
        self._together: list[WriteJob] | None = None
        self._closed = False
        self._file = self._read_file = _identity(path)
        """Identities of the file that holds the history, and of the one the reader has open."""
        self._writer = HistoryWriter(
            lambda: self._connect(0.0), self._restored, self.changed.emit, self._on_failed, self.recovered.emit
        )

    @property
    def path(self) -> Path:
        return self._path

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Write everything inside the context to the file as a whole or not at all."""
        if self._together is not None:
            yield
            return
        self._together = []
        try:
            yield
        finally:
            jobs, self._together = self._together, None
            if jobs:
                self._put(
                    WriteJob(
                        tuple(statement for job in jobs for statement in job.statements),
                        frozenset().union(*(job.chats for job in jobs)),
                        tuple(dict.fromkeys(chat for job in jobs for chat in job.told)),
                    )
                )

    def bulk(self) -> BulkWriter:
        """A way to write thousands of chats, for a thread of its own; :attr:`changed` says nothing of them. Raises
        sqlite3.Error and OSError."""
        self.flush()  # it reads by a connection of its own
        file = self._file

        def check() -> None:
            if _identity(self._path) != file:
                raise OSError(tr("another file was put at {path}", path=self._path))

        return BulkWriter(lambda: self._connect(writer.CLOSE_S), check, self._writer.lock)

    def flush(self, patience_s: float = writer.PATIENCE_S) -> bool:
        """Wait until every write issued so far is in the file; not for long, and not at all where writing fails.

        Returns whether it is.
        """
        return self._closed or self._writer.flush(patience_s)

    def unsaved(self) -> list[str]:
        """The ids of the chats of which something is not in the file; "" is the one that is not begun."""
        if self._closed:
            return []
        return list(dict.fromkeys(chat for job in self._writer.waiting() for chat in sorted(job.chats)))

    def close(self) -> None:
        """Write what waits, as far as that succeeds, and close the file. Idempotent."""
        if self._closed:
            return
        left = self._writer.close()
        self._closed = True
        self._unsaved.close()
        self._reader.close()
        if left:
            chats = sorted(frozenset().union(*(job.chats for job in left)))
            log.error("%d writes to the history could not be made, of the chats %s", len(left), chats)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _open_or_set_aside(self) -> sqlite3.Connection:
        try:
            return self._prepare()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
                if writer.is_held(error):
                    raise HistoryUnusableError(
                        tr(
                            "Another program holds the history at {path}. Close it, then start Kvasir again.",
                            path=self._path,
                        )
                    ) from error
                raise HistoryUnusableError(
                    tr(
                        "The history at {path} cannot be opened ({why}). Check the folder's permissions and space.",
                        path=self._path,
                        why=error,
                    )
                ) from error
            file = self._path.resolve()  # a link to it stays one
            aside = file.with_name(f"{file.stem}.damaged-{int(time.time())}{file.suffix}")
            file.rename(aside)
            for suffix in ("-wal", "-shm"):
                file.with_name(file.name + suffix).unlink(missing_ok=True)
            log.error("the history was damaged (%s) and set aside as %s", error, aside)
            self.notice = tr(
                "The history could not be read, so a new one was begun. The old file is kept as {path}.", path=aside
            )
            return self._prepare()

    def _prepare(self) -> sqlite3.Connection:
        _keep_private(self._path)
        connection = self._connect(10.0)
        try:
            if is_earlier(connection):
                self._upgrading(lambda tell: upgrade(connection, self._path, tell))
            else:
                upgrade(connection, self._path)
            connection.execute("UPDATE messages SET state = 'interrupted' WHERE state = 'streaming'")
            self.removed = [row[0] for row in connection.execute("SELECT id FROM chats WHERE deleted")]
            connection.execute("DELETE FROM chats WHERE deleted")
            backups.forget(self._path, self.removed)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self, patience_s: float) -> sqlite3.Connection:
        """``patience_s`` is how long a lock of another program is waited for."""
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=patience_s)
        try:
            connection.text_factory = cells.text
            refuse_later(connection, self._path)  # before anything is written
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def _read(self, sql: str, *values: str | int) -> list[tuple]:
        if self._closed:  # a last refresh of the window while the program closes
            return []
        return self._reading().execute(sql, values).fetchall()

    def _reading(self) -> sqlite3.Connection:
        """The connection that sees every write issued so far."""
        waiting = [] if self.flush() else self._writer.waiting()
        if self._read_file != self._file:
            self._read_anew()
        return self._unsaved.reader(waiting)

    def _restored(self) -> bool:
        """On the writer's thread: whether the file had to be written anew, because it was removed, which ends nothing
        on POSIX but the next start. Raises OSError where another one lies there now, or it cannot be written."""
        try:
            found = _identity(self._path)
        except FileNotFoundError:
            backups.restore(self._reader, self._path)
            self._file = _identity(self._path)
            log.error("the history was removed while it was open, and is written again")
            self.unreadable.emit(
                tr("The history at {path} was removed while Kvasir ran. It is written there again.", path=self._path)
            )
            return True
        if found != self._file:
            raise OSError(tr("another file was put at {path}, and what is shown here is not in it", path=self._path))
        return False

    def _read_anew(self) -> None:
        """From the file that was written in the place of the one that is gone."""
        file = self._file
        try:
            reader = self._connect(writer.PATIENCE_S)
        except sqlite3.Error:
            log.exception("the history that was written again cannot be read yet")
            return
        self._unsaved.close()
        self._reader.close()
        self._reader, self._read_file, self._unsaved = reader, file, UnsavedCopy(reader)

    def _mend(self, bad: list[Bad], titles: dict[str, str]) -> None:
        """Say which cells could not be read, keep a copy of the file with them, and put what is shown in their place.

        ``titles``: of the chat of each row.
        """
        bad = [one for one in bad if one not in self._bad]
        if not bad or self._closed:
            return
        self._bad.update(bad)
        parts = {(_KNOWN_AS.get(one.column, one.column), titles[one.row]) for one in bad}
        what = "; ".join(sorted(tr("{part} of “{title}”", part=part, title=title) for part, title in parts))
        sentence = tr("A part of the history could not be read and is at its default: {what}.", what=what)
        try:
            self._copy = self._copy or backups.keep(self._reader, self._path)
        except (sqlite3.Error, OSError) as error:
            log.exception("no copy of the history with its unreadable cells could be made")
            left = tr("The file was left as it is, as no copy could be made of it ({why}).", why=error)
            self.unreadable.emit(f"{sentence} {left}")
            return
        log.error("replaced in the history, of which %s is a copy: %s", self._copy, bad)
        for one in bad:
            self._write(f"UPDATE {one.table} SET {one.column} = ? WHERE id = ?", (one.value, one.row))
        kept = tr("The history as it was is kept as {path}.", path=self._copy)
        self.unreadable.emit(f"{sentence} {kept}")

    def _write(
        self,
        sql: str,
        values: tuple,
        chat: str | None = None,
        tell: bool | str = False,
        key: str = "",
        last: bool = False,
    ) -> None:
        """``chat`` is the one of which a person saw what is written, ``tell`` whether to announce it, or which one."""
        self._write_all([(sql, values)], chat, tell, key, last)

    def _write_all(
        self,
        statements: Iterable[tuple[str, tuple]],
        chat: str | None = None,
        tell: bool | str = False,
        key: str = "",
        last: bool = False,
    ) -> None:
        """The same with several statements, of which all are in the file or none."""
        told = (tell,) if isinstance(tell, str) else (chat,) if tell and chat else ()  # "" is a folder
        chats = frozenset() if chat is None else frozenset((chat,))
        job = WriteJob(tuple((sql, tuple(map(storable, values))) for sql, values in statements), chats, told, key, last)
        if self._together is not None:
            self._together.append(job)
        else:
            self._put(job)

    def _put(self, job: WriteJob) -> None:
        if self._closed:
            log.warning("a write came after the history was closed")
            return
        self._writer.put(job)

    def _on_failed(self, error: Exception) -> None:
        if writer.is_held(error):
            sentence = tr(
                "The history could not be saved: another program holds the file. It is saved as soon as that program "
                "lets go of it."
            )
        elif writer.is_full(error):
            sentence = tr(
                "The history could not be saved: the disk is full. Free some space: it is then saved automatically."
            )
        else:
            sentence = tr(
                "The history could not be saved: {why}. It is tried again; allow writing to {folder} and check the "
                "free space there.",
                why=writer.words_of(error).rstrip("."),
                folder=self._path.parent,
            )
        self.failed.emit(f"{sentence} {tr('Nothing that you see is lost while Kvasir runs.')}")


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode of the file at a path. Raises OSError."""
    facts = path.stat()
    return facts.st_dev, facts.st_ino


def _keep_private(path: Path) -> None:
    """No other user may read the chats, wherever the file lies. Files that SQLite makes next to it take its mode.

    A file that is there is not opened for this: closing it would end the locks of a connection of this process.
    """
    with contextlib.suppress(OSError):  # whoever opens it says why it cannot be
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
            if os.name == "posix" and file.is_file() and file.stat().st_mode & 0o077:
                file.chmod(0o600)  # an earlier version's
