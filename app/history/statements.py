"""SQL that keeps a chat or a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from app.documents.records import Document
from app.history import cells
from app.history.records import Chat, Draft, FolderDocument, StoredMessage, now

_CHANGING = ("content", "state", "stats", "spans", "thinking", "parts")
"""Columns of a message that change while it is written."""
_NAMED = (
    "INSERT INTO message_documents VALUES (?,?,?,?,?,?) ON CONFLICT (message, place) DO UPDATE SET sent = excluded.sent"
)
_OF_FOLDER = (
    "INSERT INTO folder_documents (id, folder, place, document, name, path, stamp) VALUES (?,?,?,?,?,?,?) "
    "ON CONFLICT (id) DO UPDATE SET place = excluded.place, document = excluded.document, name = excluded.name, "
    "path = excluded.path, stamp = excluded.stamp"
)


class Statement(NamedTuple):
    sql: str
    values: tuple


def of_chat(chat: Chat) -> Statement:
    """Insert the chat or replace what is known of it."""
    row = (
        *chat[:5],
        packed(chat.sampling),
        chat.leaf,
        packed(chat.thinking),
        chat.overflow,
        chat.adapter,
        packed(chat.servers),
        packed(chat.remote),
        packed(chat.left_out),
    )
    updates = ", ".join(f"{name} = excluded.{name}" for name in cells.CHAT[1:])
    return Statement(f"{_insert('chats', cells.CHAT)} ON CONFLICT (id) DO UPDATE SET {updates}", row)


def of_message(message: StoredMessage) -> list[Statement]:
    """Insert the message with its pictures and documents, or replace it."""
    stats, spans = packed(message.stats), packed(message.spans)
    row = (*message[:6], stats, spans, message.created or now(), message.thinking, packed(message.parts))
    updates = ", ".join(f"{name} = excluded.{name}" for name in _CHANGING)
    kept = Statement(f"{_insert('messages', cells.MESSAGE)} ON CONFLICT (id) DO UPDATE SET {updates}", row)
    shown = "INSERT OR REPLACE INTO pictures VALUES (?,?,?)"
    parts = [Statement(shown, (message.id, place, data)) for place, data in enumerate(message.pictures)]
    for place, (document, use, folder) in enumerate(message.documents):
        named = (message.id, place, document.digest, document.name, packed(use), folder)
        parts += [of_text(document), Statement(_NAMED, named)]
    return [kept, *parts]


def of_text(document: Document) -> Statement:
    """Keep the text of a document with its facts, which is there once whatever has it."""
    text = (document.digest, packed(document.facts), document.text)
    return Statement("INSERT OR IGNORE INTO documents VALUES (?,?,?)", text)


def of_folder_documents(folder: str, documents: Sequence[FolderDocument]) -> list[Statement]:
    """Make these the documents of a folder, in this order."""
    others = "DELETE FROM folder_documents WHERE folder = ? AND id NOT IN (SELECT value FROM json_each(?))"
    parts = [Statement(others, (folder, packed([each.id for each in documents])))]
    for place, (key, document, path, stamp) in enumerate(documents):
        row = (key, folder, place, document.digest, document.name, path, stamp)
        parts += [of_text(document), Statement(_OF_FOLDER, row)]
    return parts


def of_draft_parts(chat: str, draft: Draft) -> list[Statement]:
    """Keep the pictures and documents of a draft in the place of those that it had; no file's failure is kept."""
    parts = [Statement(f"DELETE FROM draft_{name} WHERE chat = ?", (chat,)) for name in ("documents", "pictures")]
    shown = "INSERT INTO draft_pictures VALUES (?,?,?)"
    parts += [Statement(shown, (chat, place, data)) for place, data in enumerate(draft.pictures)]
    for place, each in enumerate(draft.documents):
        digest = each.document.digest if each.document is not None else None
        parts += [of_text(each.document)] if each.document is not None else []
        row = (chat, place, digest, each.name, each.path, each.pasted)
        parts.append(Statement("INSERT INTO draft_documents VALUES (?,?,?,?,?,?)", row))
    return parts


def packed(value: object) -> str:
    return msgspec.json.encode(value).decode()


def storable(value: object) -> object:
    """Half of a surrogate pair, which no file can hold, becomes a replacement character."""
    if isinstance(value, str) and not cells.encodable(value):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def _insert(table: str, columns: tuple[str, ...]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({','.join('?' * len(columns))})"
