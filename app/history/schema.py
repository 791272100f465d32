"""The history's tables and how older files are brought up to date."""

from __future__ import annotations

import sqlite3

_V1 = """
CREATE TABLE chats (
    id TEXT PRIMARY KEY, title TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL,
    system_prompt TEXT NOT NULL DEFAULT '', sampling TEXT NOT NULL DEFAULT '{}',
    leaf TEXT NOT NULL DEFAULT '', deleted INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX chats_by_update ON chats (deleted, updated DESC);
CREATE TABLE messages (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    chat TEXT NOT NULL REFERENCES chats (id) ON DELETE CASCADE, parent TEXT NOT NULL,
    role TEXT NOT NULL, content TEXT NOT NULL, state TEXT NOT NULL,
    stats TEXT NOT NULL DEFAULT '{}', spans TEXT NOT NULL DEFAULT '[]', created REAL NOT NULL
);
CREATE INDEX messages_by_chat ON messages (chat, created);
CREATE VIRTUAL TABLE words USING fts5 (content, tokenize = 'unicode61 remove_diacritics 2');
CREATE TRIGGER words_insert AFTER INSERT ON messages WHEN new.state != 'streaming' BEGIN
    INSERT INTO words (rowid, content) VALUES (new.number, new.content);
END;
CREATE TRIGGER words_update AFTER UPDATE OF content, state ON messages WHEN new.state != 'streaming' BEGIN
    DELETE FROM words WHERE rowid = old.number;
    INSERT INTO words (rowid, content) VALUES (new.number, new.content);
END;
CREATE TRIGGER words_delete AFTER DELETE ON messages BEGIN
    DELETE FROM words WHERE rowid = old.number;
END;
"""

_V2 = """
ALTER TABLE messages ADD COLUMN thinking TEXT NOT NULL DEFAULT '';
ALTER TABLE chats ADD COLUMN thinking TEXT NOT NULL DEFAULT '{}';
"""

_V3 = """
ALTER TABLE chats ADD COLUMN overflow TEXT NOT NULL DEFAULT 'stop';
"""

_V4 = """
-- Spans name who guessed: [tint, chars, by] beside the older [tint, chars], which versions before this cannot read.
"""

MIGRATIONS: tuple[str, ...] = (_V1, _V2, _V3, _V4)
"""``MIGRATIONS[i]`` brings version i to version i + 1. Never edit one that was released: append."""
VERSION = len(MIGRATIONS)


class HistoryUnusableError(Exception):
    """The history cannot be opened; the text says why and what to do."""


class TooNewError(HistoryUnusableError):
    """The file was written by a later version of Kvasir."""


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the file to VERSION, each step in a transaction of its own. Raises TooNewError, sqlite3.DatabaseError."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise TooNewError(
            f"The history was written by a later version of Kvasir (schema {version}). Install that version again."
        )
    for number in range(version, VERSION):
        connection.executescript(f"BEGIN;\n{MIGRATIONS[number]}\nPRAGMA user_version = {number + 1};\nCOMMIT;")
