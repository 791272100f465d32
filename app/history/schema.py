"""The history's tables and how older files are brought up to date."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from engine.base.lines import split_lines

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
-- Spans name the drafter: [tint, chars, by] next to the older [tint, chars], all that versions before this read.
"""

_V5 = """
-- Unsent text, of the chat that is not begun under ''; ``edited`` is the message that it would take the place of, and
-- ``before`` what was typed before that edit began.
CREATE TABLE drafts (
    chat TEXT PRIMARY KEY, text TEXT NOT NULL, edited TEXT NOT NULL DEFAULT '', before TEXT NOT NULL DEFAULT ''
);
CREATE TRIGGER drafts_delete AFTER DELETE ON chats BEGIN
    DELETE FROM drafts WHERE chat = old.id;
END;
"""

_V6 = """
ALTER TABLE chats ADD COLUMN adapter TEXT NOT NULL DEFAULT '';
CREATE TABLE pictures (
    message TEXT NOT NULL REFERENCES messages (id) ON DELETE CASCADE, place INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (message, place)
);
"""

_V7 = """
-- Runs of three letters, for scripts that are written without spaces, for signs, and for the inside of words.
CREATE VIRTUAL TABLE letters USING fts5 (
    content, content = 'messages', content_rowid = 'number', tokenize = 'trigram'
);
INSERT INTO letters (rowid, content) SELECT number, content FROM messages WHERE state != 'streaming';
CREATE TRIGGER letters_insert AFTER INSERT ON messages WHEN new.state != 'streaming' BEGIN
    INSERT INTO letters (rowid, content) VALUES (new.number, new.content);
END;
CREATE TRIGGER letters_update AFTER UPDATE OF content, state ON messages BEGIN
    INSERT INTO letters (letters, rowid, content)
        SELECT 'delete', old.number, old.content WHERE old.state != 'streaming';
    INSERT INTO letters (rowid, content) SELECT new.number, new.content WHERE new.state != 'streaming';
END;
CREATE TRIGGER letters_delete AFTER DELETE ON messages WHEN old.state != 'streaming' BEGIN
    INSERT INTO letters (letters, rowid, content) VALUES ('delete', old.number, old.content);
END;
-- Whether it has an answer that nobody has seen.
ALTER TABLE chats ADD COLUMN unread INTEGER NOT NULL DEFAULT 0;
"""

_V8 = """
-- Calls of tools and their results, in messages of the role "tool"; and whose tools a chat has.
ALTER TABLE messages ADD COLUMN parts TEXT NOT NULL DEFAULT '[]';
ALTER TABLE chats ADD COLUMN servers TEXT NOT NULL DEFAULT '[]';
"""

_V9 = """
-- The model of another server that answers, as JSON.
ALTER TABLE chats ADD COLUMN remote TEXT NOT NULL DEFAULT 'null';
"""

_V10 = """
-- Tools that answers could call, as JSON, once for each chat; statistics of answers have the digest.
CREATE TABLE tools (
    chat TEXT NOT NULL REFERENCES chats (id) ON DELETE CASCADE, digest TEXT NOT NULL, config TEXT NOT NULL,
    PRIMARY KEY (chat, digest)
);
"""

_V11 = """
CREATE TABLE folders (id TEXT PRIMARY KEY, name TEXT NOT NULL, folded INTEGER NOT NULL DEFAULT 0);
-- The id of its folder, '' for none; its tags as a JSON list; and of an imported chat whose it was, as "openai:ID".
ALTER TABLE chats ADD COLUMN folder TEXT NOT NULL DEFAULT '';
ALTER TABLE chats ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chats ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chats ADD COLUMN tags TEXT NOT NULL DEFAULT '[]';
ALTER TABLE chats ADD COLUMN origin TEXT NOT NULL DEFAULT '';
CREATE INDEX chats_by_origin ON chats (origin) WHERE origin != '';
-- The words again, with an index of their first letter and first two, and without a copy of the texts.
DROP TRIGGER words_insert;
DROP TRIGGER words_update;
DROP TRIGGER words_delete;
DROP TABLE words;
CREATE VIRTUAL TABLE words USING fts5 (
    content, content = 'messages', content_rowid = 'number', tokenize = 'unicode61 remove_diacritics 2', prefix = '1 2'
);
INSERT INTO words (rowid, content) SELECT number, content FROM messages WHERE state != 'streaming';
CREATE TRIGGER words_insert AFTER INSERT ON messages WHEN new.state != 'streaming' BEGIN
    INSERT INTO words (rowid, content) VALUES (new.number, new.content);
END;
CREATE TRIGGER words_update AFTER UPDATE OF content, state ON messages BEGIN
    INSERT INTO words (words, rowid, content)
        SELECT 'delete', old.number, old.content WHERE old.state != 'streaming';
    INSERT INTO words (rowid, content) SELECT new.number, new.content WHERE new.state != 'streaming';
END;
CREATE TRIGGER words_delete AFTER DELETE ON messages WHEN old.state != 'streaming' BEGIN
    INSERT INTO words (words, rowid, content) VALUES ('delete', old.number, old.content);
END;
-- One or two letters: runs of three that begin with them, and the ends of texts, where no run of three begins.
CREATE VIRTUAL TABLE letter_runs USING fts5vocab ('letters', 'instance');
CREATE INDEX messages_by_end ON messages (lower(substr(content, -2)));
CREATE INDEX messages_by_last ON messages (lower(substr(content, -1)));
"""

_V12 = """
-- Texts of documents with their facts, as JSON, each once; and of which messages they are parts. ``sent``: what of one
-- the model was given, as JSON; null: that is not decided.
CREATE TABLE documents (digest TEXT PRIMARY KEY, facts TEXT NOT NULL, text TEXT NOT NULL);
CREATE TABLE message_documents (
    message TEXT NOT NULL REFERENCES messages (id) ON DELETE CASCADE, place INTEGER NOT NULL,
    document TEXT NOT NULL REFERENCES documents (digest), name TEXT NOT NULL, sent TEXT NOT NULL DEFAULT 'null',
    PRIMARY KEY (message, place)
);
CREATE INDEX message_documents_by_document ON message_documents (document);
CREATE TRIGGER documents_delete AFTER DELETE ON message_documents BEGIN
    DELETE FROM documents WHERE digest = old.document
        AND NOT EXISTS (SELECT 1 FROM message_documents WHERE document = old.document);
END;
"""

_FORGET_TEXT = """\
    DELETE FROM documents WHERE digest = old.document
        AND NOT EXISTS (SELECT 1 FROM message_documents WHERE document = old.document)
        AND NOT EXISTS (SELECT 1 FROM folder_documents WHERE document = old.document)
        AND NOT EXISTS (SELECT 1 FROM draft_documents WHERE document = old.document);
"""

_V13 = f"""
-- Documents that belong to a folder, in the order ``place``; ``path`` is the file that was read, ``stamp`` its time and
-- size then. Which of a message's came with the folder; and the ids of those that a chat goes without, as JSON.
CREATE TABLE folder_documents (
    id TEXT PRIMARY KEY, folder TEXT NOT NULL REFERENCES folders (id) ON DELETE CASCADE, place INTEGER NOT NULL,
    document TEXT NOT NULL REFERENCES documents (digest), name TEXT NOT NULL,
    path TEXT NOT NULL DEFAULT '', stamp TEXT NOT NULL DEFAULT ''
);
CREATE INDEX folder_documents_by_folder ON folder_documents (folder, place);
CREATE INDEX folder_documents_by_document ON folder_documents (document);
ALTER TABLE message_documents ADD COLUMN folder INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chats ADD COLUMN left_out TEXT NOT NULL DEFAULT '[]';
-- Documents and pictures of what was not sent yet; ``document`` is NULL while the file at ``path`` is being read.
CREATE TABLE draft_documents (
    chat TEXT NOT NULL, place INTEGER NOT NULL, document TEXT REFERENCES documents (digest), name TEXT NOT NULL,
    path TEXT NOT NULL DEFAULT '', pasted INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (chat, place)
);
CREATE INDEX draft_documents_by_document ON draft_documents (document);
CREATE TABLE draft_pictures (
    chat TEXT NOT NULL, place INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (chat, place)
);
CREATE TRIGGER draft_parts_delete AFTER DELETE ON chats BEGIN
    DELETE FROM draft_documents WHERE chat = old.id;
    DELETE FROM draft_pictures WHERE chat = old.id;
END;
-- A text goes with the last that has it.
DROP TRIGGER documents_delete;
CREATE TRIGGER documents_delete AFTER DELETE ON message_documents BEGIN
{_FORGET_TEXT}END;
CREATE TRIGGER folder_documents_delete AFTER DELETE ON folder_documents BEGIN
{_FORGET_TEXT}END;
CREATE TRIGGER folder_documents_update AFTER UPDATE OF document ON folder_documents BEGIN
{_FORGET_TEXT}END;
CREATE TRIGGER draft_documents_delete AFTER DELETE ON draft_documents BEGIN
{_FORGET_TEXT}END;
"""

MIGRATIONS: tuple[str, ...] = (_V1, _V2, _V3, _V4, _V5, _V6, _V7, _V8, _V9, _V10, _V11, _V12, _V13)
"""``MIGRATIONS[i]`` brings version i to version i + 1. Never edit one that was released: append."""
VERSION = len(MIGRATIONS)
_EVERY = "SELECT number, content FROM messages WHERE state != 'streaming';"
"""Ends a statement that indexes every message, which is what a migration spends its time with."""
_AT_ONCE = 20_000
"""Messages that are indexed before it is told how far that is."""
_GATHERED, _USUAL = 64 << 20, 1 << 20
"""Bytes of an index that FTS5 gathers in memory before it writes them, in a migration and usually: what is gathered
once need not be merged."""

Tell = Callable[[float], object]
"""Told the share of the work that is done, 0..1."""


class HistoryUnusableError(Exception):
    """The history cannot be opened; the text says why and what to do."""


class TooNewError(HistoryUnusableError):
    """The file was written by a later version of Kvasir."""


class MigrationError(HistoryUnusableError):
    """The file could not be brought up to date, and is as it was."""


def version_of(connection: sqlite3.Connection) -> int:
    """The schema of a file; 0 for one that is still empty."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def migrate(connection: sqlite3.Connection, tell: Tell = lambda _: None) -> None:
    """Bring the file to VERSION in one transaction: whatever ends it early, the file is as it was.

    Raises sqlite3.Error. ``connection`` is one without implicit transactions (isolation_level None).
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = version_of(connection)  # behind the lock: another process may have done it in the meantime
        scripts = [[*_statements(script)] for script in MIGRATIONS[found:VERSION]]
        begins = _begins(connection) if found else []
        pieces = len(begins) * sum(_indexes(statement) for script in scripts for statement in script)
        done = 0
        for number, script in enumerate(scripts, found + 1):
            for statement in script:
                if not _indexes(statement):
                    connection.execute(statement)
                    continue
                table = statement.split()[2]  # INSERT INTO it
                gather = f"INSERT INTO {table} ({table}, rank) VALUES ('hashsize', ?)"
                connection.execute(gather, (_GATHERED,))
                for sql, values in _pieces(statement, begins):
                    connection.execute(sql, values)
                    done += 1
                    tell(done / pieces)
                connection.execute(gather, (_USUAL,))
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _indexes(statement: str) -> bool:
    return statement.rstrip().endswith(_EVERY)


def _begins(connection: sqlite3.Connection) -> list[int]:
    """The first of every _AT_ONCE messages."""
    return [number for (number,) in connection.execute("SELECT number FROM messages ORDER BY number")][::_AT_ONCE]


def _pieces(statement: str, begins: Sequence[int]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The statement for so many messages at a time: all of them, but it can be told in between how far it is."""
    sql = statement.rstrip().removesuffix(";")
    for begin, end in pairwise(begins):
        yield f"{sql} AND number >= ? AND number < ?", (begin, end)
    for begin in begins[-1:]:
        yield f"{sql} AND number >= ?", (begin,)


def _statements(script: str) -> Iterator[str]:
    """executescript would commit before it begins; a trigger's body holds semicolons of its own."""
    statement = ""
    for line in split_lines(script, keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement
