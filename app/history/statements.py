"""SQL that keeps a chat or a message."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from app.history import cells
from app.history.records import Chat, StoredMessage, now

_CHANGING = ("content", "state", "stats", "spans", "thinking", "parts")
"""Columns of a message that change while it is written."""
_NAMED = (
    "INSERT INTO message_documents VALUES (?,?,?,?,?) ON CONFLICT (message, place) DO UPDATE SET sent = excluded.sent"
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
    for place, (document, use) in enumerate(message.documents):
        text = (document.digest, packed(document.facts), document.text)
        named = (message.id, place, document.digest, document.name, packed(use))
        parts += [Statement("INSERT OR IGNORE INTO documents VALUES (?,?,?)", text), Statement(_NAMED, named)]
    return [kept, *parts]


def packed(value: object) -> str:
    return msgspec.json.encode(value).decode()


def storable(value: object) -> object:
    """Half of a surrogate pair, which no file can hold, becomes a replacement character."""
    if isinstance(value, str) and not cells.encodable(value):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def _insert(table: str, columns: tuple[str, ...]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({','.join('?' * len(columns))})"
