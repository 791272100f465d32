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

import msgspec
from PySide6.QtCore import QObject, Signal

from app.history import backups, cells
from app.history.cells import Bad
from app.history.records import Chat, Draft, Message, SearchHit
from app.history.schema import HistoryUnusableError
from app.history.upgrade import refuse_later, upgrade
from engine.protocol import Overflow, Sampling, Thinking

log = logging.getLogger(__name__)

Job = tuple[str, tuple, str]
"""SQL, its values, and the chat to announce (or "")."""
_CHAT, _MESSAGE = ", ".join(cells.CHAT), ", ".join(cells.MESSAGE)
_DRAFT = ", ".join(Draft._fields[:3])
_KNOWN_AS = {
    "sampling": "the sampling settings",
    "stats": "the statistics of an answer",
    "spans": "the highlights of drafted tokens",
    "content": "the text of a message",
    "title": "the title",
    "system_prompt": "the system prompt",
    "thinking": "the thinking",
    "adapter": "the name of the adapter",
    "created": "a date",
    "updated": "the date of the last use",
}
"""What a person knows a column as."""


class HistoryStore(QObject):
    """The history file at ``path`` (":memory:" is not supported: two connections share it).

    A damaged file is renamed and a new one begun; :attr:`notice` then holds the sentence for people.
    Answers that were streaming when the program last ended are marked interrupted, deleted chats are removed for good.
    A file of an earlier version is copied and brought up to date (app/history/upgrade.py).
    Raises HistoryUnusableError (a later version wrote it, or it or its folder cannot be written).
    Signals come from the writer thread: connect QObjects.
    """

    changed = Signal(str)
    """The id of a chat whose row (title, order, existence) changed."""
    failed = Signal(str)
    """A write failed, or a part could not be read; a sentence for people."""

    recovered = Signal()
    """Writes succeed again after one failed."""

    def __init__(self, path: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._path = path
        self.notice = ""
        self.removed: list[str] = []
        """The ids of chats that were removed for good when this file was opened."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._reader = self._open_or_set_aside()
        self._unread: set[Bad] = set()
        """Cells that were said to be unreadable."""
        self._copy: Path | None = None
        """The copy of the file from before any of them was replaced in this run."""
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
        bad: list[Bad] = []
        chats = [cells.chat(row, bad) for row in rows]
        self._mend(bad, {chat.id: chat.title for chat in chats})
        return chats

    def chat(self, chat_id: str) -> Chat | None:
        rows = self._read(f"SELECT {_CHAT} FROM chats WHERE id = ? AND NOT deleted", chat_id)
        bad: list[Bad] = []
        chat = cells.chat(rows[0], bad) if rows else None
        self._mend(bad, {chat_id: chat.title if chat is not None else ""})
        return chat

    def messages(self, chat_id: str) -> list[Message]:
        """Every message of the chat, all branches, oldest first."""
        rows = self._read(f"SELECT {_MESSAGE} FROM messages WHERE chat = ? ORDER BY created, number", chat_id)
        bad: list[Bad] = []
        shown = self._pictures(chat_id)
        messages = [cells.message(row, bad) for row in rows]
        messages = [message._replace(pictures=tuple(shown.get(message.id, ()))) for message in messages]
        if bad:
            chat = self.chat(chat_id)
            self._mend(bad, dict.fromkeys((one.row for one in bad), chat.title if chat is not None else ""))
        return messages

    def _pictures(self, chat_id: str) -> dict[str, list[bytes]]:
        """The pictures of a chat's messages, by their ids."""
        found: dict[str, list[bytes]] = {}
        rows = self._read(
            "SELECT p.message, p.data FROM pictures p JOIN messages m ON m.id = p.message WHERE m.chat = ? "
            "ORDER BY p.message, p.place",
            chat_id,
        )
        for message, data in rows:
            if isinstance(data, bytes):
                found.setdefault(cells.plain(message), []).append(data)
        return found

    def search(self, text: str, limit: int = 50) -> list[SearchHit]:
        """Chats whose title contains ``text`` or whose messages contain words beginning with each of its words."""
        words = [word for word in text.split() if any(c.isalnum() for c in word)]
        if not words:
            return [SearchHit(chat, "") for chat in self.chats()]
        query = " ".join('"' + word.replace('"', '""') + '"*' for word in words)
        columns = ", ".join(f"c.{name}" for name in _CHAT.split(", "))
        rows = self._read(
            f"SELECT {columns}, m.id, snippet(words, 0, '', '', '…', 10) FROM words "
            "JOIN messages m ON m.number = words.rowid JOIN chats c ON c.id = m.chat "
            "WHERE words MATCH ? AND NOT c.deleted ORDER BY rank LIMIT ?",
            query,
            4 * limit,
        )
        titled = [chat for chat in self.chats() if text.strip().casefold() in chat.title.casefold()]
        found = {chat.id: SearchHit(chat, "") for chat in titled}
        for row in rows:
            *chat, message, excerpt = row
            found.setdefault(
                row[0], SearchHit(cells.chat(tuple(chat), []), " ".join(cells.plain(excerpt).split()), message)
            )
        return list(found.values())[:limit]

    def draft(self, chat_id: str) -> Draft:
        """``chat_id`` "" is the chat that is not begun."""
        rows = self._read(f"SELECT {_DRAFT} FROM drafts WHERE chat = ?", chat_id)
        if not rows:
            return Draft()
        text, edited, before = map(cells.plain, rows[0])
        return Draft(text, edited, before)

    # --- writing ---------------------------------------------------------------------------------------------------

    def save_chat(self, chat: Chat) -> None:
        """Insert the chat or replace what is known of it."""
        sampling, thinking = msgspec.json.encode(chat.sampling).decode(), msgspec.json.encode(chat.thinking).decode()
        row = (*chat[:5], sampling, chat.leaf, thinking, chat.overflow, chat.adapter)
        updates = ", ".join(f"{name} = excluded.{name}" for name in _CHAT.split(", ")[1:])
        self._write(
            f"INSERT INTO chats ({_CHAT}) VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET {updates}",
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
        for place, data in enumerate(message.pictures):
            self._write("INSERT OR REPLACE INTO pictures VALUES (?,?,?)", (message.id, place, data))

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

    def set_adapter(self, chat_id: str, adapter: str) -> None:
        self._write("UPDATE chats SET adapter = ? WHERE id = ?", (adapter, chat_id))

    def set_draft(self, chat_id: str, draft: Draft) -> None:
        """``chat_id`` "" is the chat that is not begun; one without text is forgotten."""
        if draft.text or draft.before:
            self._write(f"INSERT OR REPLACE INTO drafts (chat, {_DRAFT}) VALUES (?,?,?,?)", (chat_id, *draft[:3]))
        else:
            self._write("DELETE FROM drafts WHERE chat = ?", (chat_id,))

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
        self.flush()
        return self._reader.execute(sql, values).fetchall()

    def _mend(self, bad: list[Bad], titles: dict[str, str]) -> None:
        """Say which cells could not be read, keep a copy of the file with them, and put what is shown in their place.

        ``titles``: of the chat of each row.
        """
        bad = [one for one in bad if one not in self._unread]
        if not bad or self._closed:
            return
        self._unread.update(bad)
        what = "; ".join(sorted({f"{_KNOWN_AS.get(one.column, one.column)} of “{titles[one.row]}”" for one in bad}))
        sentence = f"A part of the history could not be read and is at its default: {what}."
        try:
            self._copy = self._copy or backups.keep(self._reader, self._path)
        except (sqlite3.Error, OSError) as error:
            log.exception("no copy of the history with its unreadable cells could be made")
            self.failed.emit(f"{sentence} The file was left as it is, as no copy could be made of it ({error}).")
            return
        log.error("replaced in the history, of which %s is a copy: %s", self._copy, bad)
        for one in bad:
            self._write(f"UPDATE {one.table} SET {one.column} = ? WHERE id = ?", (one.value, one.row))
        self.failed.emit(f"{sentence} The history as it was is kept as {self._copy}.")

    def _write(self, sql: str, values: tuple, chat_id: str = "") -> None:
        if self._closed:
            log.warning("a write came after the history was closed")
            return
        self._jobs.put((sql, values, chat_id))

    def _write_loop(self) -> None:
        connection, failed = self._connect(), False
        while (job := self._jobs.get()) is not None:
            sql, values, chat_id = job
            try:
                connection.execute(sql, values)
                if failed:
                    failed = False
                    self.recovered.emit()
                if chat_id:
                    self.changed.emit(chat_id)
            except (sqlite3.Error, UnicodeError) as error:
                log.exception("the history could not be written")
                failed = True
                self.failed.emit(f"The history could not be saved ({error}). Check the free space on the disk.")
            finally:
                self._jobs.task_done()
        self._jobs.task_done()
        connection.close()


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
