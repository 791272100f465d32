"""Conversations in SQLite: one writer thread, reads on the caller's thread that see every write issued before them."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sqlite3
import threading
import time
from pathlib import Path
from typing import get_args

import msgspec
from PySide6.QtCore import QObject, Signal

from app.history import backups
from app.history.records import AnswerStats, Chat, Found, Message, Span
from app.history.schema import HistoryUnusableError
from app.history.upgrade import refuse_later, upgrade
from engine.protocol import Overflow, Sampling, Thinking

log = logging.getLogger(__name__)

Job = tuple[str, tuple, str]
"""SQL, its values, and the chat to announce (or "")."""
_CHAT = "id, title, created, updated, system_prompt, sampling, leaf, thinking, overflow"
_MESSAGE = "id, chat, parent, role, content, state, stats, spans, created, thinking"


class HistoryStore(QObject):
    """The history file at ``path`` (":memory:" is not supported: two connections share it).

    A damaged file is set aside beside itself and a new one begun; :attr:`notice` then holds the sentence for people.
    Answers that were streaming when the program last ended are marked interrupted, deleted chats are removed for good.
    A file of an earlier version is copied and brought up to date (app/history/upgrade.py).
    Raises HistoryUnusableError (a later version wrote it, or it or its folder cannot be written).
    Signals come from the writer thread: connect QObjects.
    """

    changed = Signal(str)
    """The id of a chat whose row (title, order, existence) changed."""
    failed = Signal(str)
    """A write failed; a sentence for people."""

    def __init__(self, path: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._path = path
        self.notice = ""
        self.removed: list[str] = []
        """The ids of chats that were removed for good when this file was opened."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._reader = self._open_or_set_aside()
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._closed = False
        self._thread = threading.Thread(target=self._write_loop, name="kvasir-history", daemon=True)
        self._thread.start()

    @property
    def path(self) -> Path:
        return self._path

    # --- reading ---------------------------------------------------------------------------------------------------

    def chats(self) -> list[Chat]:
        """All chats that are not deleted, the last used first."""
        rows = self._read(f"SELECT {_CHAT} FROM chats WHERE NOT deleted ORDER BY updated DESC")
        return [_chat(row) for row in rows]

    def chat(self, chat_id: str) -> Chat | None:
        rows = self._read(f"SELECT {_CHAT} FROM chats WHERE id = ? AND NOT deleted", chat_id)
        return _chat(rows[0]) if rows else None

    def messages(self, chat_id: str) -> list[Message]:
        """Every message of the chat, all branches, oldest first."""
        rows = self._read(f"SELECT {_MESSAGE} FROM messages WHERE chat = ? ORDER BY created, number", chat_id)
        return [_message(row) for row in rows]

    def search(self, text: str, limit: int = 50) -> list[Found]:
        """Chats whose title contains ``text`` or whose messages contain words beginning with each of its words."""
        words = [word for word in text.split() if any(c.isalnum() for c in word)]
        if not words:
            return [Found(chat, "") for chat in self.chats()]
        query = " ".join('"' + word.replace('"', '""') + '"*' for word in words)
        columns = ", ".join(f"c.{name}" for name in _CHAT.split(", "))
        rows = self._read(
            f"SELECT {columns}, snippet(words, 0, '', '', '…', 10) FROM words "
            "JOIN messages m ON m.number = words.rowid JOIN chats c ON c.id = m.chat "
            "WHERE words MATCH ? AND NOT c.deleted ORDER BY rank LIMIT ?",
            query,
            4 * limit,
        )
        titled = [chat for chat in self.chats() if text.strip().casefold() in chat.title.casefold()]
        found = {chat.id: Found(chat, "") for chat in titled}
        for row in rows:
            found.setdefault(row[0], Found(_chat(row[:-1]), " ".join(row[-1].split())))
        return list(found.values())[:limit]

    # --- writing ---------------------------------------------------------------------------------------------------

    def save_chat(self, chat: Chat) -> None:
        """Insert the chat or replace what is known of it."""
        sampling, thinking = msgspec.json.encode(chat.sampling).decode(), msgspec.json.encode(chat.thinking).decode()
        row = (*chat[:5], sampling, chat.leaf, thinking, chat.overflow)
        updates = ", ".join(f"{name} = excluded.{name}" for name in _CHAT.split(", ")[1:])
        self._write(
            f"INSERT INTO chats ({_CHAT}) VALUES (?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET {updates}",
            row,
            chat.id,
        )

    def save_message(self, message: Message) -> None:
        """Insert the message or replace it."""
        stats, spans = msgspec.json.encode(message.stats).decode(), msgspec.json.encode(message.spans).decode()
        row = (*message[:6], stats, spans, message.created or time.time(), message.thinking)
        updates = ", ".join(f"{name} = excluded.{name}" for name in ("content", "state", "stats", "spans", "thinking"))
        self._write(
            f"INSERT INTO messages ({_MESSAGE}) VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET {updates}",
            row,
        )

    def remove_message(self, message_id: str) -> None:
        self._write("DELETE FROM messages WHERE id = ?", (message_id,))

    def set_leaf(self, chat_id: str, leaf: str, touch: bool = True) -> None:
        """Which branch the chat shows; ``touch`` also moves the chat to the top of the list."""
        if touch:
            self._write("UPDATE chats SET leaf = ?, updated = ? WHERE id = ?", (leaf, time.time(), chat_id), chat_id)
        else:
            self._write("UPDATE chats SET leaf = ? WHERE id = ?", (leaf, chat_id))

    def set_title(self, chat_id: str, title: str) -> None:
        self._write("UPDATE chats SET title = ? WHERE id = ?", (title, chat_id), chat_id)

    def set_settings(self, chat_id: str, system_prompt: str, sampling: Sampling) -> None:
        row = (system_prompt, msgspec.json.encode(sampling).decode(), chat_id)
        self._write("UPDATE chats SET system_prompt = ?, sampling = ? WHERE id = ?", row)

    def set_thinking(self, chat_id: str, thinking: Thinking) -> None:
        row = (msgspec.json.encode(thinking).decode(), chat_id)
        self._write("UPDATE chats SET thinking = ? WHERE id = ?", row)

    def set_overflow(self, chat_id: str, overflow: Overflow) -> None:
        self._write("UPDATE chats SET overflow = ? WHERE id = ?", (overflow, chat_id))

    def delete(self, chat_id: str) -> None:
        """Hide the chat; it is removed for good at the next start."""
        self._write("UPDATE chats SET deleted = 1 WHERE id = ?", (chat_id,), chat_id)

    def undelete(self, chat_id: str) -> None:
        self._write("UPDATE chats SET deleted = 0 WHERE id = ?", (chat_id,), chat_id)

    def flush(self) -> None:
        """Returns when every write issued so far is in the file."""
        if not self._closed:
            self._jobs.join()

    def close(self) -> None:
        """Finish all writes and close the file. Idempotent."""
        if self._closed:
            return
        self._jobs.put(None)
        self._thread.join()
        self._closed = True
        self._reader.close()

    # --- inside ----------------------------------------------------------------------------------------------------

    def _open_or_set_aside(self) -> sqlite3.Connection:
        try:
            return self._prepare()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
                raise HistoryUnusableError(
                    f"The history at {self._path} cannot be opened ({error}). Check the folder's permissions and space."
                ) from error
            aside = self._path.with_name(f"{self._path.stem}.damaged-{int(time.time())}{self._path.suffix}")
            self._path.rename(aside)
            for suffix in ("-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            log.error("the history was damaged (%s) and set aside as %s", error, aside)
            self.notice = f"The history could not be read, so a new one was begun. The old file is kept as {aside}."
            return self._prepare()

    def _prepare(self) -> sqlite3.Connection:
        _keep_private(self._path)
        connection = self._connect()
        try:
            upgrade(connection, self._path)
            connection.execute("UPDATE messages SET state = 'interrupted' WHERE state = 'streaming'")
            self.removed = [row[0] for row in connection.execute("SELECT id FROM chats WHERE deleted")]
            connection.execute("DELETE FROM chats WHERE deleted")
            backups.forget(self._path, self.removed)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=10.0)
        try:
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
        self.flush()
        return self._reader.execute(sql, values).fetchall()

    def _write(self, sql: str, values: tuple, chat_id: str = "") -> None:
        if self._closed:
            log.warning("a write came after the history was closed")
            return
        self._jobs.put((sql, values, chat_id))

    def _write_loop(self) -> None:
        connection = self._connect()
        while (job := self._jobs.get()) is not None:
            sql, values, chat_id = job
            try:
                connection.execute(sql, values)
                if chat_id:
                    self.changed.emit(chat_id)
            except sqlite3.Error as error:
                log.exception("the history could not be written")
                self.failed.emit(f"The history could not be saved ({error}). Check the free space on the disk.")
            finally:
                self._jobs.task_done()
        self._jobs.task_done()
        connection.close()


def _keep_private(path: Path) -> None:
    """Chats are for nobody else's eyes, wherever the file lies. Files that SQLite makes beside it take its mode.

    A file that is there is not opened for this: closing it would end the locks of a connection of this process.
    """
    with contextlib.suppress(OSError):  # whoever opens it says why it cannot be
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        for file in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
            if os.name == "posix" and file.is_file() and file.stat().st_mode & 0o077:
                file.chmod(0o600)  # an earlier version's


def _chat(row: tuple) -> Chat:
    sampling, thinking = msgspec.json.decode(row[5], type=Sampling), msgspec.json.decode(row[7], type=Thinking)
    overflow = row[8] if row[8] in get_args(Overflow) else "stop"  # a later version may know more
    return Chat._make((*row[:5], sampling, row[6], thinking, overflow))


def _message(row: tuple) -> Message:
    stats = msgspec.json.decode(row[6], type=AnswerStats)
    spans = tuple(msgspec.json.decode(row[7], type=list[Span]))
    return Message._make((*row[:6], stats, spans, *row[8:]))
