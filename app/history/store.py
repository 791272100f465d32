"""Conversations in SQLite: one writer thread, reads on the caller's thread that see every write issued before them."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from PySide6.QtCore import QObject, Signal

from app.documents.records import Document, DocumentFacts, DocumentUse, MessageDocument
from app.history import backups, cells, search, statements, writer
from app.history.bulk import BulkWriter
from app.history.cells import Bad
from app.history.records import Chat, Draft, Folder, ListedChat, SearchHit, StoredMessage, now
from app.history.schema import HistoryUnusableError
from app.history.statements import packed, storable
from app.history.unsaved import UnsavedCopy
from app.history.upgrade import refuse_later, upgrade
from app.history.writer import HistoryWriter, WriteJob
from app.language import tr
from engine.protocol import Overflow, RemoteModel, Sampling, Thinking, ToolConfig

log = logging.getLogger(__name__)

_CHAT, _LISTED, _MESSAGE = ", ".join(cells.CHAT), ", ".join(cells.LISTED), ", ".join(cells.MESSAGE)
_DRAFT = ", ".join(Draft._fields[:3])
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
    "folder": tr("the folder"),
    "tags": tr("the tags"),
    "created": tr("a date"),
    "updated": tr("the date of the last use"),
}
"""Names of the columns as a person knows them."""


class HistoryStore(QObject):
    """The history file at ``path`` (":memory:" is not supported: two connections share it).

    A damaged file is renamed and a new one begun; :attr:`notice` then holds the sentence for people.
    Answers that were streaming when the program last ended are marked interrupted, deleted chats are removed for good.
    A file of an earlier version is copied and brought up to date (app/history/upgrade.py).
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

    def __init__(self, path: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._path = path
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
        self._listed: tuple[tuple[int, int | None], list[ListedChat]] = ((0, None), [])
        """What the list showed last, and the connection and version of the file that it is of."""
        self._file = self._read_file = _identity(path)
        """Identities of the file that holds the history, and of the one the reader has open."""
        self._writer = HistoryWriter(
            lambda: self._connect(0.0), self._restored, self.changed.emit, self._on_failed, self.recovered.emit
        )

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

    def titles(self) -> list[tuple[str, str]]:
        """Ids and titles of all chats that are not deleted, the last used first."""
        rows = self._read("SELECT id, title FROM chats WHERE NOT deleted ORDER BY updated DESC")
        return [(cells.plain(chat), cells.plain(title)) for chat, title in rows]

    def chat(self, chat_id: str) -> Chat | None:
        rows = self._read(f"SELECT {_CHAT} FROM chats WHERE id = ? AND NOT deleted", chat_id)
        bad: list[Bad] = []
        chat = cells.chat(rows[0], bad) if rows else None
        self._mend(bad, {chat_id: chat.title if chat is not None else ""})
        return chat

    def messages(self, chat_id: str) -> list[StoredMessage]:
        """Every message of the chat, all branches, in the order in which they came."""
        rows = self._read(f"SELECT {_MESSAGE} FROM messages WHERE chat = ? ORDER BY number", chat_id)
        bad: list[Bad] = []
        shown = self._pictures(chat_id)
        messages = [cells.message(row, bad) for row in rows]
        messages = [message._replace(pictures=tuple(shown.get(message.id, ()))) for message in messages]
        read = self._documents(chat_id)
        messages = [message._replace(documents=tuple(read.get(message.id, ()))) for message in messages]
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

    def _documents(self, chat_id: str) -> dict[str, list[MessageDocument]]:
        """The documents of a chat's messages, by their ids; what of them cannot be read is at its default."""
        found: dict[str, list[MessageDocument]] = {}
        known: dict[str, tuple[DocumentFacts, str]] = {}
        rows = self._read(
            "SELECT r.message, r.document, r.name, r.sent FROM message_documents r JOIN messages m ON m.id = r.message "
            "WHERE m.chat = ? ORDER BY r.message, r.place",
            chat_id,
        )
        for message, digest, name, sent in rows:
            if digest not in known:
                texts = self._read("SELECT facts, text FROM documents WHERE digest = ?", digest)
                facts, text = texts[0] if texts else ("{}", "")
                known[digest] = _unpacked(facts, DocumentFacts, DocumentFacts()), cells.plain(text)
            document = Document(cells.plain(name), known[digest][1], known[digest][0], cells.plain(digest))
            use = _unpacked(sent, DocumentUse | None, DocumentUse())
            found.setdefault(cells.plain(message), []).append(MessageDocument(document, use))
        return found

    def tools(self, chat_id: str, digest: str) -> ToolConfig | None:
        """What :meth:`save_tools` gave this digest. Raises LookupError where it is not there, or cannot be read."""
        for (config,) in self._read("SELECT config FROM tools WHERE chat = ? AND digest = ?", chat_id, digest):
            with contextlib.suppress(msgspec.MsgspecError, TypeError, ValueError, RecursionError):
                return msgspec.json.decode(config, type=ToolConfig | None)
        raise LookupError(digest)

    def listed(self) -> list[ListedChat]:
        """All chats that are not deleted as the list shows them, archived ones too, the last used first."""
        if self._closed:
            return []
        reader = self._reading()
        # Another connection writes, so this counts each write; a copy in memory is read again each time.
        version = reader.execute("PRAGMA data_version").fetchone()[0] if reader is self._reader else None
        if version is None or self._listed[0] != (id(reader), version):
            self._listed = ((id(reader), version), self._list())
        return list(self._listed[1])

    def _list(self) -> list[ListedChat]:
        rows = self._read(f"SELECT {_LISTED} FROM chats WHERE NOT deleted ORDER BY updated DESC")
        bad: list[Bad] = []
        chats = [cells.listed(row, bad) for row in rows]
        if bad:
            self._mend(bad, {chat.id: chat.title for chat in chats})
        return chats

    def folders(self) -> list[Folder]:
        """All folders, by name."""
        rows = self._read("SELECT id, name, folded FROM folders")
        folders = [Folder(cells.plain(key), cells.plain(name), bool(folded)) for key, name, folded in rows]
        return sorted(folders, key=lambda folder: (folder.name.casefold(), folder.id))

    def search(self, text: str, limit: int = 50) -> list[SearchHit]:
        """Chats whose title has each of the words of ``text``, or one of whose messages has, and that have its tags
        (app/history/search.py)."""
        terms, tags = wanted = search.wanted(text)
        chats = self.listed()
        if tags:
            chats = [chat for chat in chats if wanted.has_tags(chat.tags)]
        if not terms:
            return [SearchHit(chat, "") for chat in chats]
        titled = [chat for chat in chats if all(term.inside(chat.title) for term in terms)]
        found = {chat.id: SearchHit(chat, "") for chat in titled[:limit]}
        known = {chat.id: chat for chat in chats}
        among = packed(list(known)) if tags else ""
        for chat_id, message, content in search.messages(self._read, terms, "c.id", 4 * limit, among):
            hit = found.get(chat_id)
            if chat_id in known and (not hit.message if hit is not None else len(found) < limit):
                excerpt = search.excerpt(cells.plain(content), terms)
                found[chat_id] = SearchHit(known[chat_id], excerpt, message)
        return list(found.values())

    def unread(self) -> frozenset[str]:
        """The chats with an answer that nobody has seen."""
        return frozenset(row[0] for row in self._read("SELECT id FROM chats WHERE unread AND NOT deleted"))

    def draft(self, chat_id: str) -> Draft:
        """``chat_id`` "" is the chat that is not begun."""
        rows = self._read(f"SELECT {_DRAFT} FROM drafts WHERE chat = ?", chat_id)
        if not rows:
            return Draft()
        text, edited, before = map(cells.plain, rows[0])
        return Draft(text, edited, before)

    # --- writing ---------------------------------------------------------------------------------------------------

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

    def save_chat(self, chat: Chat) -> None:
        """Insert the chat or replace what is known of it."""
        self._write(*statements.of_chat(chat), chat.id, tell=True)

    def save_message(self, message: StoredMessage) -> None:
        """Insert the message or replace it."""
        kept, *shown = statements.of_message(message)
        with self.together() if shown else contextlib.nullcontext():
            self._write(*kept, message.chat, key=f"message {message.id}")
            for part in shown:
                self._write(*part, message.chat)

    def save_tools(self, chat_id: str, tools: ToolConfig | None) -> str:
        """Keep what an answer of this chat is told of tools, None for no tools; its digest."""
        config = packed(tools)
        digest = hashlib.sha256(config.encode()).hexdigest()[:16]
        self._write("INSERT OR IGNORE INTO tools VALUES (?,?,?)", (chat_id, digest, config), chat_id)
        return digest

    def remove_message(self, message_id: str) -> None:
        self._write("DELETE FROM messages WHERE id = ?", (message_id,))

    def set_leaf(self, chat_id: str, leaf: str, touch: bool = True) -> None:
        """Set the branch the chat shows; ``touch`` also moves the chat to the top of the list."""
        if touch:
            self._write("UPDATE chats SET leaf = ?, updated = ? WHERE id = ?", (leaf, now(), chat_id), chat_id, True)
        else:
            self._write("UPDATE chats SET leaf = ? WHERE id = ?", (leaf, chat_id), chat_id)

    def set_title(self, chat_id: str, title: str) -> None:
        self._write("UPDATE chats SET title = ? WHERE id = ?", (title, chat_id), chat_id, tell=True)

    def set_folder(self, chat_id: str, folder_id: str) -> None:
        """Move the chat to a folder, "" to none."""
        self._write("UPDATE chats SET folder = ? WHERE id = ?", (folder_id, chat_id), chat_id, tell=True)

    def set_pinned(self, chat_id: str, pinned: bool) -> None:
        self._write("UPDATE chats SET pinned = ? WHERE id = ?", (pinned, chat_id), chat_id, tell=True)

    def set_archived(self, chat_id: str, archived: bool) -> None:
        self._write("UPDATE chats SET archived = ? WHERE id = ?", (archived, chat_id), chat_id, tell=True)

    def set_tags(self, chat_id: str, tags: Sequence[str]) -> None:
        self._write("UPDATE chats SET tags = ? WHERE id = ?", (packed(tags), chat_id), chat_id, tell=True)

    def save_folder(self, folder: Folder) -> None:
        """Insert the folder or replace it."""
        sql = "INSERT INTO folders (id, name, folded) VALUES (?,?,?) ON CONFLICT (id) DO UPDATE SET "
        self._write(f"{sql} name = excluded.name, folded = excluded.folded", tuple(folder), tell="")

    def remove_folder(self, folder_id: str) -> None:
        """Remove a folder; its chats are in none then."""
        with self.together():
            self._write("UPDATE chats SET folder = '' WHERE folder = ?", (folder_id,))
            self._write("DELETE FROM folders WHERE id = ?", (folder_id,), tell="")

    def set_settings(self, chat_id: str, system_prompt: str, sampling: Sampling) -> None:
        row = (system_prompt, msgspec.json.encode(sampling).decode(), chat_id)
        self._write("UPDATE chats SET system_prompt = ?, sampling = ? WHERE id = ?", row, chat_id)

    def set_thinking(self, chat_id: str, thinking: Thinking) -> None:
        row = (msgspec.json.encode(thinking).decode(), chat_id)
        self._write("UPDATE chats SET thinking = ? WHERE id = ?", row, chat_id)

    def set_overflow(self, chat_id: str, overflow: Overflow) -> None:
        self._write("UPDATE chats SET overflow = ? WHERE id = ?", (overflow, chat_id), chat_id)

    def set_adapter(self, chat_id: str, adapter: str) -> None:
        self._write("UPDATE chats SET adapter = ? WHERE id = ?", (adapter, chat_id), chat_id)

    def set_servers(self, chat_id: str, servers: Sequence[str]) -> None:
        self._write("UPDATE chats SET servers = ? WHERE id = ?", (packed(servers), chat_id), chat_id)

    def set_remote(self, chat_id: str, remote: RemoteModel | None) -> None:
        self._write("UPDATE chats SET remote = ? WHERE id = ?", (packed(remote), chat_id), chat_id)

    def set_unread(self, chat_id: str, unread: bool) -> None:
        """Set whether the chat has an answer that nobody has seen."""
        self._write("UPDATE chats SET unread = ? WHERE id = ?", (unread, chat_id), key=f"unread {chat_id}")

    def set_draft(self, chat_id: str, draft: Draft) -> None:
        """``chat_id`` "" is the chat that is not begun; one without text is forgotten."""
        kept = bool(draft.text or draft.before)
        sql = "DELETE FROM drafts WHERE chat = ?"
        values: tuple[str, ...] = (chat_id,)
        if kept:
            sql, values = f"INSERT OR REPLACE INTO drafts (chat, {_DRAFT}) VALUES (?,?,?,?)", (chat_id, *draft[:3])
        # Never ahead of the message that it became.
        self._write(sql, values, chat_id if kept else None, key=f"draft {chat_id}", last=True)

    def delete(self, chat_id: str) -> None:
        """Hide the chat; it is removed for good at the next start."""
        self._write("UPDATE chats SET deleted = 1 WHERE id = ?", (chat_id,), None, tell=chat_id)

    def undelete(self, chat_id: str) -> None:
        self._write("UPDATE chats SET deleted = 0 WHERE id = ?", (chat_id,), chat_id, tell=True)

    def bulk(self) -> BulkWriter:
        """A way to write thousands of chats, for a thread of its own; :attr:`changed` says nothing of them. Raises
        sqlite3.Error and OSError."""
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
        told = (tell,) if isinstance(tell, str) else (chat,) if tell and chat else ()  # "" is a folder
        chats = frozenset() if chat is None else frozenset((chat,))
        job = WriteJob(((sql, tuple(map(storable, values))),), chats, told, key, last)
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


def _unpacked(cell: Any, kind: Any, default: Any) -> Any:
    """A value of JSON, or what stands for one that cannot be read."""
    try:
        return msgspec.json.decode(cell, type=kind)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return default


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
