"""Conversations in SQLite: one writer thread, reads on the caller's thread that see every write issued before them."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from PySide6.QtCore import QObject

from app.documents.records import Document, DocumentFacts, DocumentUse, MessageDocument
from app.history import cells, statements
from app.history.cells import Bad
from app.history.file import Upgrading
from app.history.listing import ListStore
from app.history.records import Attached, Chat, Draft, FolderDocument, StoredMessage, now
from app.history.statements import packed
from engine.protocol import Overflow, RemoteModel, Sampling, Thinking, ToolConfig

_CHAT, _MESSAGE = ", ".join(cells.CHAT), ", ".join(cells.MESSAGE)
_DRAFT = ", ".join(Draft._fields[:3])


class HistoryStore(ListStore):
    """All of the history: chats with their messages, settings and drafts; app/history/file.py says how it is kept."""

    def __init__(self, path: Path, parent: QObject | None = None, upgrading: Upgrading | None = None) -> None:
        super().__init__(path, parent, upgrading)
        self._of_folder: dict[str, tuple[DocumentFacts, str]] = {}
        """By their digests, the texts of documents of the folder that was asked for last."""

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
            "SELECT r.message, r.document, r.name, r.sent, r.folder FROM message_documents r "
            "JOIN messages m ON m.id = r.message WHERE m.chat = ? ORDER BY r.message, r.place",
            chat_id,
        )
        for message, digest, name, sent, folder in rows:
            use = _unpacked(sent, DocumentUse | None, DocumentUse())
            part = MessageDocument(self._document(name, digest, known), use, bool(folder))
            found.setdefault(cells.plain(message), []).append(part)
        return found

    def _document(self, name: str, digest: str, known: dict[str, tuple[DocumentFacts, str]]) -> Document:
        """The document of that digest; ``known`` are those whose texts were read already."""
        if digest not in known:
            texts = self._read("SELECT facts, text FROM documents WHERE digest = ?", digest)
            facts, text = texts[0] if texts else ("{}", "")
            known[digest] = _unpacked(facts, DocumentFacts, DocumentFacts()), cells.plain(text)
        return Document(cells.plain(name), known[digest][1], known[digest][0], cells.plain(digest))

    def folder_documents(self, folder_id: str) -> list[FolderDocument]:
        """The documents of a folder, in their order."""
        rows = self._read(
            "SELECT id, name, document, path, stamp FROM folder_documents WHERE folder = ? ORDER BY place", folder_id
        )
        known = {digest: text for digest, text in self._of_folder.items() if digest in {row[2] for row in rows}}
        self._of_folder = known  # of the folder that was asked for last
        return [
            FolderDocument(cells.plain(key), self._document(name, digest, known), cells.plain(path), cells.plain(stamp))
            for key, name, digest, path, stamp in rows
        ]

    def document_digests(self) -> set[str]:
        """Digests of all documents."""
        return {cells.plain(digest) for (digest,) in self._read("SELECT digest FROM documents")}

    def tools(self, chat_id: str, digest: str) -> ToolConfig | None:
        """What :meth:`save_tools` gave this digest. Raises LookupError where it is not there, or cannot be read."""
        for (config,) in self._read("SELECT config FROM tools WHERE chat = ? AND digest = ?", chat_id, digest):
            with contextlib.suppress(msgspec.MsgspecError, TypeError, ValueError, RecursionError):
                return msgspec.json.decode(config, type=ToolConfig | None)
        raise LookupError(digest)

    def draft(self, chat_id: str) -> Draft:
        """``chat_id`` "" is the chat that is not begun."""
        rows = self._read(f"SELECT {_DRAFT} FROM drafts WHERE chat = ?", chat_id)
        text, edited, before = map(cells.plain, rows[0]) if rows else ("", "", "")
        shown = self._read("SELECT data FROM draft_pictures WHERE chat = ? ORDER BY place", chat_id)
        pictures = tuple(data for (data,) in shown if isinstance(data, bytes))
        known: dict[str, tuple[DocumentFacts, str]] = {}
        documents = tuple(
            Attached(
                cells.plain(name),
                self._document(name, digest, known) if digest is not None else None,
                bool(pasted),
                cells.plain(path),
            )
            for name, digest, pasted, path in self._read(
                "SELECT name, document, pasted, path FROM draft_documents WHERE chat = ? ORDER BY place", chat_id
            )
        )
        return Draft(text, edited, before, pictures, documents)

    # --- writing ---------------------------------------------------------------------------------------------------

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

    def set_left_out(self, chat_id: str, documents: Sequence[str]) -> None:
        """Set the documents of its folder, by their ids, that the chat goes without."""
        self._write("UPDATE chats SET left_out = ? WHERE id = ?", (packed(documents), chat_id), chat_id)

    def set_folder_documents(self, folder_id: str, documents: Sequence[FolderDocument]) -> None:
        """Make these the documents of a folder, in this order."""
        self._write_all(statements.of_folder_documents(folder_id, documents), tell="")

    def set_remote(self, chat_id: str, remote: RemoteModel | None) -> None:
        self._write("UPDATE chats SET remote = ? WHERE id = ?", (packed(remote), chat_id), chat_id)

    def set_draft(self, chat_id: str, draft: Draft) -> None:
        """Keep the text of a draft. ``chat_id`` "" is the chat that is not begun; one without text is forgotten."""
        kept = bool(draft.text or draft.before or (draft.edited and (draft.pictures or draft.documents)))
        sql = "DELETE FROM drafts WHERE chat = ?"
        values: tuple[str, ...] = (chat_id,)
        if kept:
            sql, values = f"INSERT OR REPLACE INTO drafts (chat, {_DRAFT}) VALUES (?,?,?,?)", (chat_id, *draft[:3])
        # Never ahead of the message that it became.
        self._write(sql, values, chat_id if kept else None, key=f"draft {chat_id}", last=True)

    def set_draft_parts(self, chat_id: str, draft: Draft) -> None:
        """Keep the pictures and the documents of a draft, which change less often than its text."""
        seen = chat_id if draft.pictures or draft.documents else None
        self._write_all(statements.of_draft_parts(chat_id, draft), seen, key=f"parts {chat_id}", last=True)


def _unpacked(cell: Any, kind: Any, default: Any) -> Any:
    """A value of JSON, or what stands for one that cannot be read."""
    try:
        return msgspec.json.decode(cell, type=kind)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return default
