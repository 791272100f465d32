"""Histories as released versions of Kvasir wrote them: their SQL and their rows, frozen. Never edit: append.

Nothing of today's code makes these files; today's records only say what must be read from them.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from app.documents.records import Document, DocumentFacts, DocumentPassage, DocumentUse, MessageDocument
from app.history.records import (
    AnswerStats,
    Chat,
    Folder,
    FolderDocument,
    ListedChat,
    OmittedContext,
    StoredMessage,
    TextSpan,
)
from engine.protocol import RemoteModel, Sampling, Thinking, Timings, ToolCall, ToolResult, Usage

SQL = (
    """
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
""",
    """
ALTER TABLE messages ADD COLUMN thinking TEXT NOT NULL DEFAULT '';
ALTER TABLE chats ADD COLUMN thinking TEXT NOT NULL DEFAULT '{}';
""",
    """
ALTER TABLE chats ADD COLUMN overflow TEXT NOT NULL DEFAULT 'stop';
""",
    "",  # the fourth wrote longer spans into the same tables
    """
CREATE TABLE drafts (
    chat TEXT PRIMARY KEY, text TEXT NOT NULL, edited TEXT NOT NULL DEFAULT '', before TEXT NOT NULL DEFAULT ''
);
CREATE TRIGGER drafts_delete AFTER DELETE ON chats BEGIN
    DELETE FROM drafts WHERE chat = old.id;
END;
""",
    """
ALTER TABLE chats ADD COLUMN adapter TEXT NOT NULL DEFAULT '';
CREATE TABLE pictures (
    message TEXT NOT NULL REFERENCES messages (id) ON DELETE CASCADE, place INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (message, place)
);
""",
    """
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
ALTER TABLE chats ADD COLUMN unread INTEGER NOT NULL DEFAULT 0;
""",
    """
ALTER TABLE messages ADD COLUMN parts TEXT NOT NULL DEFAULT '[]';
ALTER TABLE chats ADD COLUMN servers TEXT NOT NULL DEFAULT '[]';
""",
    """
ALTER TABLE chats ADD COLUMN remote TEXT NOT NULL DEFAULT 'null';
""",
    """
CREATE TABLE tools (
    chat TEXT NOT NULL REFERENCES chats (id) ON DELETE CASCADE, digest TEXT NOT NULL, config TEXT NOT NULL,
    PRIMARY KEY (chat, digest)
);
""",
    """
CREATE TABLE folders (id TEXT PRIMARY KEY, name TEXT NOT NULL, folded INTEGER NOT NULL DEFAULT 0);
ALTER TABLE chats ADD COLUMN folder TEXT NOT NULL DEFAULT '';
ALTER TABLE chats ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chats ADD COLUMN archived INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chats ADD COLUMN tags TEXT NOT NULL DEFAULT '[]';
ALTER TABLE chats ADD COLUMN origin TEXT NOT NULL DEFAULT '';
CREATE INDEX chats_by_origin ON chats (origin) WHERE origin != '';
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
CREATE VIRTUAL TABLE letter_runs USING fts5vocab ('letters', 'instance');
CREATE INDEX messages_by_end ON messages (lower(substr(content, -2)));
CREATE INDEX messages_by_last ON messages (lower(substr(content, -1)));
""",
    """
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
""",
    """
CREATE TABLE folder_documents (
    id TEXT PRIMARY KEY, folder TEXT NOT NULL REFERENCES folders (id) ON DELETE CASCADE, place INTEGER NOT NULL,
    document TEXT NOT NULL REFERENCES documents (digest), name TEXT NOT NULL,
    path TEXT NOT NULL DEFAULT '', stamp TEXT NOT NULL DEFAULT ''
);
CREATE INDEX folder_documents_by_folder ON folder_documents (folder, place);
CREATE INDEX folder_documents_by_document ON folder_documents (document);
ALTER TABLE message_documents ADD COLUMN folder INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chats ADD COLUMN left_out TEXT NOT NULL DEFAULT '[]';
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
DROP TRIGGER documents_delete;
CREATE TRIGGER documents_delete AFTER DELETE ON message_documents BEGIN
    DELETE FROM documents WHERE digest = old.document
        AND NOT EXISTS (SELECT 1 FROM message_documents WHERE document = old.document)
        AND NOT EXISTS (SELECT 1 FROM folder_documents WHERE document = old.document)
        AND NOT EXISTS (SELECT 1 FROM draft_documents WHERE document = old.document);
END;
CREATE TRIGGER folder_documents_delete AFTER DELETE ON folder_documents BEGIN
    DELETE FROM documents WHERE digest = old.document
        AND NOT EXISTS (SELECT 1 FROM message_documents WHERE document = old.document)
        AND NOT EXISTS (SELECT 1 FROM folder_documents WHERE document = old.document)
        AND NOT EXISTS (SELECT 1 FROM draft_documents WHERE document = old.document);
END;
CREATE TRIGGER folder_documents_update AFTER UPDATE OF document ON folder_documents BEGIN
    DELETE FROM documents WHERE digest = old.document
        AND NOT EXISTS (SELECT 1 FROM message_documents WHERE document = old.document)
        AND NOT EXISTS (SELECT 1 FROM folder_documents WHERE document = old.document)
        AND NOT EXISTS (SELECT 1 FROM draft_documents WHERE document = old.document);
END;
CREATE TRIGGER draft_documents_delete AFTER DELETE ON draft_documents BEGIN
    DELETE FROM documents WHERE digest = old.document
        AND NOT EXISTS (SELECT 1 FROM message_documents WHERE document = old.document)
        AND NOT EXISTS (SELECT 1 FROM folder_documents WHERE document = old.document)
        AND NOT EXISTS (SELECT 1 FROM draft_documents WHERE document = old.document);
END;
""",
)
"""``SQL[i]`` made schema i + 1 of schema i."""
RELEASED = range(1, len(SQL) + 1)

CHAT = "id, title, created, updated, system_prompt, sampling, leaf, deleted"
DRAFT = "chat, text, edited"
PICTURE = "message, place, data"
TOOLS = "chat, digest, config"
FOLDER = "id, name, folded"
DOCUMENT, PART = "digest, facts, text", "message, place, document, name, sent"
FOLDER_DOCUMENT, FOLDER_PART = "id, folder, place, document, name, path, stamp", f"{PART}, folder"
DRAFT_DOCUMENT, DRAFT_PICTURE = "chat, place, document, name, path, pasted", "chat, place, data"
_TABLES = {
    FOLDER: "folders",
    DRAFT: "drafts",
    PICTURE: "pictures",
    TOOLS: "tools",
    DOCUMENT: "documents",
    PART: "message_documents",
    FOLDER_PART: "message_documents",
    FOLDER_DOCUMENT: "folder_documents",
    DRAFT_DOCUMENT: "draft_documents",
    DRAFT_PICTURE: "draft_pictures",
}
MESSAGE = "id, chat, parent, role, content, state, stats, spans, created"

_STATS = (
    '{"sampling":{"temperature":0.3,"seed":5,"stop":["\\n"]},"model":"kvasir-guide","reason":"stop","usage":'
    '{"prompt_tokens":30,"cached_tokens":16,"generated_tokens":7,"seed":5},"timings":{"queued_ms":0.5,"ttft_ms":12.25,'
    '"total_ms":99.5,"tokens_per_second":61.5,"tokens_per_step":1.5,"steps":5,"proposed":8,"accepted":2}}'
)
_ROWS = (
    # schema 1
    [
        (
            CHAT,
            "'pages', 'Pages', 10.5, 40.25, 'Be \"short\".\nAnd ''kind''.', "
            """'{"temperature":0.3,"stop":["\\n"]}', 'answer', 0""",
        ),
        (CHAT, "'bird', 'Ærlig talt 🐦 – 漢字', 11.0, 20.0, '', '{}', '', 0"),
        (CHAT, "'gone', 'Deleted', 12.0, 30.0, '', '{}', '', 1"),
        (MESSAGE, "'ask', 'pages', '', 'user', 'Why pages of sixteen tokens?', 'complete', '{}', '[]', 11.0"),
        (
            MESSAGE,
            "'answer', 'pages', 'ask', 'assistant', 'Because the café is full.', 'complete', "
            f"""'{_STATS}', '[["",8],["accepted",12],["corrected",5]]', 12.0""",
        ),
        (
            MESSAGE,
            "'other', 'pages', 'ask', 'assistant', 'Another branch: alligators.', 'interrupted', "
            """'{"reason":"cancelled"}', '[]', 13.0""",
        ),
        (MESSAGE, "'half', 'pages', 'ask', 'assistant', 'Half an ans', 'streaming', '{}', '[]', 14.0"),
        (MESSAGE, "'edit', 'pages', '', 'user', 'An edited question?', 'complete', '{}', '[]', 15.0"),
        (MESSAGE, "'rav', 'bird', '', 'user', '烏は賢い 🐦‍⬛ naïve\r\n\ttabs', 'complete', '{}', '[]', 16.0"),
        (MESSAGE, "'lost', 'gone', '', 'user', 'Forgotten secret', 'complete', '{}', '[]', 17.0"),
    ],
    # schema 2
    [
        (CHAT + ", thinking", "'mind', 'Mind', 20.0, 21.0, '', '{}', '', 0, '{\"on\":false,\"effort\":\"low\"}'"),
        (
            MESSAGE + ", thinking",
            "'thought', 'mind', '', 'assistant', 'Out loud', 'complete', "
            """'{"thinking":{"on":true},"thought_s":2.5}', '[]', 22.0, 'Inwardly: zebra'""",
        ),
    ],
    # schema 3
    [
        (CHAT + ", thinking, overflow", "'long', 'Long', 30.0, 31.0, '', '{}', '', 0, '{}', 'drop_middle'"),
        (
            MESSAGE + ", thinking",
            "'cut', 'long', '', 'assistant', 'Without the middle', 'complete', '"
            '{"overflow":"drop_middle","cut":{"policy":"drop_middle","first":2,"last":6,"tokens":4210},"diverged":12,'
            """"divergence":"left out"}', '[["accepted",18]]', 32.0, ''""",
        ),
    ],
    # schema 4
    [
        (CHAT + ", thinking, overflow", "'guess', 'Guess', 40.0, 41.0, '', '{}', '', 0, '{}', 'window'"),
        (
            MESSAGE + ", thinking",
            "'named', 'guess', '', 'assistant', 'Guessed by whom', 'complete', "
            """'{}', '[["",3,""],["accepted",12,"medusa"]]', 42.0, ''""",
        ),
    ],
    # schema 5
    [
        (CHAT + ", thinking, overflow", "'unsent', 'Unsent', 50.0, 51.0, '', '{}', '', 0, '{}', 'stop'"),
        (MESSAGE + ", thinking", "'begun', 'unsent', '', 'user', 'Well begun', 'complete', '{}', '[]', 52.0, ''"),
        (DRAFT, "'unsent', 'half done', 'begun'"),
    ],
    # schema 6
    [
        (CHAT + ", thinking, overflow, adapter", "'own', 'Own', 60.0, 61.0, '', '{}', '', 0, '{}', 'stop', 'pirate'"),
        (
            MESSAGE + ", thinking",
            """'arr', 'own', '', 'assistant', 'Ahoy', 'complete', '{"adapter":"pirate"}', '[]', 62.0, ''""",
        ),
        (MESSAGE + ", thinking", "'look', 'own', '', 'user', 'Look at these', 'complete', '{}', '[]', 63.0, ''"),
        (PICTURE, "'look', 1, x'6f74686572'"),
        (PICTURE, "'look', 0, x'6f6e65'"),
    ],
    # schema 7
    [
        (CHAT + ", unread", "'late', 'Late', 70.0, 71.0, '', '{}', '', 0, 1"),
        (MESSAGE + ", thinking", "'snow', 'late', '', 'user', '新しい雪 in C++', 'complete', '{}', '[]', 72.0, ''"),
    ],
    # schema 8
    [
        (CHAT + ", servers", """'tools', 'Tools', 80.0, 81.0, '', '{}', '', 0, '["files"]'"""),
        (
            MESSAGE + ", parts",
            "'call', 'tools', '', 'assistant', '', 'complete', "
            """'{"servers":["files"],"reason":"stop"}', '[]', 82.0, """
            """'[{"type":"tool_call","id":"c1","name":"files__read","arguments":"{\\"path\\":1}"}]'""",
        ),
        (
            MESSAGE + ", parts",
            "'told', 'tools', 'call', 'tool', '', 'complete', '{}', '[]', 83.0, "
            """'[{"type":"tool_result","id":"c1","content":"no","name":"files__read","pictures":["b25l"],"failed":true}]'""",
        ),
    ],
    # schema 9
    [(CHAT + ", remote", """'far', 'Far', 90.0, 91.0, '', '{}', '', 0, '{"server":"lab","model":"m"}'""")],
    # schema 10
    [
        (CHAT + ", servers", """'kit', 'Kit', 100.0, 101.0, '', '{}', '', 0, '["files"]'"""),
        (
            MESSAGE,
            """'had', 'kit', '', 'assistant', 'Had', 'complete', '{"servers":["files"],"tools":"d1"}', '[]', 102.0""",
        ),
        (TOOLS, """'kit', 'd1', '{"tools":[{"name":"files__read"}]}'"""),
    ],
    # schema 11
    [
        (FOLDER, "'f1', 'Trips', 1"),
        (
            CHAT + ", folder, pinned, archived, tags, origin",
            """'trip', 'Trip', 110.0, 111.0, '', '{}', '', 0, 'f1', 1, 0, '["sea","two words"]', 'openai:9'""",
        ),
        (CHAT + ", archived", "'past', 'Past', 110.0, 112.0, '', '{}', '', 0, 1"),
        (MESSAGE, "'sail', 'trip', '', 'user', 'Sail to 龘', 'complete', '{}', '[]', 113.0"),
    ],
    # schema 12
    [
        (CHAT, "'read', 'Read', 104.0, 105.0, '', '{}', '', 0"),
        (MESSAGE, "'about', 'read', '', 'user', 'About what?', 'complete', '{}', '[]', 122.0"),
        (DOCUMENT, """'f00', '{"kind":"PDF","bytes":9,"pages":2,"starts":[0,4]}', 'One.Two.'"""),
        (PART, """'about', 0, 'f00', 'a.pdf', '{"passages":[[1,4,8]],"of":2,"tokens":40}'"""),
        (PART, """'about', 1, 'f00', 'b.pdf', 'null'"""),
    ],
    # schema 13
    [
        (FOLDER, "'f2', 'With papers', 0"),
        (CHAT + ", folder, left_out", """'paper', 'Paper', 102.5, 103.0, '', '{}', '', 0, 'f2', '["d2"]'"""),
        (MESSAGE, "'cite', 'paper', '', 'user', 'Cite it', 'complete', '{}', '[]', 132.0"),
        (DOCUMENT, """'f01', '{"lines":1}', 'Three.'"""),
        (FOLDER_DOCUMENT, "'d1', 'f2', 0, 'f01', 'c.txt', '/c.txt', '5 9'"),
        (FOLDER_PART, """'cite', 0, 'f01', 'c.txt', '{"tokens":3}', 1"""),
        (DRAFT_DOCUMENT, "'paper', 0, 'f01', 'd.txt', '/d.txt', 0"),
        (DRAFT_DOCUMENT, "'paper', 1, NULL, 'e.pdf', '/e.pdf', 0"),
        (DRAFT_PICTURE, "'paper', 0, CAST('one' AS BLOB)"),
    ],
)

_ANSWERED = AnswerStats(
    sampling=Sampling(temperature=0.3, seed=5, stop=["\n"]),
    model="kvasir-guide",
    reason="stop",
    usage=Usage(prompt_tokens=30, cached_tokens=16, generated_tokens=7, seed=5),
    timings=Timings(0.5, 12.25, 99.5, 61.5, 1.5, 5, proposed=8, accepted=2),
)
_CHATS = (
    [
        Chat(
            "pages",
            "Pages",
            10.5,
            40.25,
            "Be \"short\".\nAnd 'kind'.",
            Sampling(temperature=0.3, stop=["\n"]),
            "answer",
        ),
        Chat("bird", "Ærlig talt 🐦 – 漢字", 11.0, 20.0),
    ],
    [Chat("mind", "Mind", 20.0, 21.0, thinking=Thinking(on=False, effort="low"))],
    [Chat("long", "Long", 30.0, 31.0, overflow="drop_middle")],
    [Chat("guess", "Guess", 40.0, 41.0, overflow="window")],
    [Chat("unsent", "Unsent", 50.0, 51.0)],
    [Chat("own", "Own", 60.0, 61.0, adapter="pirate")],
    [Chat("late", "Late", 70.0, 71.0)],
    [Chat("tools", "Tools", 80.0, 81.0, servers=("files",))],
    [Chat("far", "Far", 90.0, 91.0, remote=RemoteModel(server="lab", model="m"))],
    [Chat("kit", "Kit", 100.0, 101.0, servers=("files",))],
    [Chat("trip", "Trip", 110.0, 111.0), Chat("past", "Past", 110.0, 112.0)],
    [Chat("read", "Read", 104.0, 105.0)],
    [Chat("paper", "Paper", 102.5, 103.0, left_out=("d2",))],
)
FOLDERS = [Folder("f1", "Trips", True)]
LISTED = [
    ListedChat("past", "Past", 112.0, archived=True),
    ListedChat("trip", "Trip", 111.0, "f1", True, False, ("sea", "two words")),
]
"""The folders and the first chats of the list since schema 11."""
THREE = Document("c.txt", "Three.", DocumentFacts(lines=1), "f01")
PAPERS = Folder("f2", "With papers", documents=1), [FolderDocument("d1", THREE, "/c.txt", "5 9")]
"""A folder with its documents, since schema 13."""
_MESSAGES = (
    [
        StoredMessage("ask", "pages", "", "user", "Why pages of sixteen tokens?", created=11.0),
        StoredMessage(
            "answer",
            "pages",
            "ask",
            "assistant",
            "Because the café is full.",
            "complete",
            _ANSWERED,
            (TextSpan("", 8), TextSpan("accepted", 12), TextSpan("corrected", 5)),
            12.0,
        ),
        StoredMessage(
            "other",
            "pages",
            "ask",
            "assistant",
            "Another branch: alligators.",
            "interrupted",
            AnswerStats(reason="cancelled"),
            created=13.0,
        ),
        StoredMessage("half", "pages", "ask", "assistant", "Half an ans", "interrupted", created=14.0),
        StoredMessage("edit", "pages", "", "user", "An edited question?", created=15.0),
        StoredMessage("rav", "bird", "", "user", "烏は賢い 🐦‍⬛ naïve\r\n\ttabs", created=16.0),
    ],
    [
        StoredMessage(
            "thought",
            "mind",
            "",
            "assistant",
            "Out loud",
            "complete",
            AnswerStats(thinking=Thinking(on=True), thought_s=2.5),
            created=22.0,
            thinking="Inwardly: zebra",
        )
    ],
    [
        StoredMessage(
            "cut",
            "long",
            "",
            "assistant",
            "Without the middle",
            "complete",
            AnswerStats(
                overflow="drop_middle",
                cut=OmittedContext("drop_middle", 2, 6, 4210),
                diverged=12,
                divergence="left out",
            ),
            (TextSpan("accepted", 18),),
            32.0,
        )
    ],
    [
        StoredMessage(
            "named",
            "guess",
            "",
            "assistant",
            "Guessed by whom",
            spans=(TextSpan("", 3), TextSpan("accepted", 12, "medusa")),
            created=42.0,
        )
    ],
    [StoredMessage("begun", "unsent", "", "user", "Well begun", created=52.0)],
    [
        StoredMessage("arr", "own", "", "assistant", "Ahoy", stats=AnswerStats(adapter="pirate"), created=62.0),
        StoredMessage("look", "own", "", "user", "Look at these", created=63.0, pictures=(b"one", b"other")),
    ],
    [StoredMessage("snow", "late", "", "user", "新しい雪 in C++", created=72.0)],
    [
        StoredMessage(
            "call",
            "tools",
            "",
            "assistant",
            "",
            stats=AnswerStats(servers=["files"], reason="stop"),
            created=82.0,
            parts=(ToolCall("c1", "files__read", '{"path":1}'),),
        ),
        StoredMessage(
            "told",
            "tools",
            "call",
            "tool",
            "",
            created=83.0,
            parts=(ToolResult("c1", "no", "files__read", [b"one"], True),),
        ),
    ],
    [],
    [
        StoredMessage(
            "had", "kit", "", "assistant", "Had", stats=AnswerStats(servers=["files"], tools="d1"), created=102.0
        )
    ],
    [StoredMessage("sail", "trip", "", "user", "Sail to 龘", created=113.0)],
    [
        StoredMessage(
            *("about", "read", "", "user", "About what?"),
            created=122.0,
            documents=(
                MessageDocument(
                    Document("a.pdf", "One.Two.", DocumentFacts("PDF", 9, 2, starts=[0, 4]), "f00"),
                    DocumentUse([DocumentPassage(1, 4, 8)], 2, 40),
                ),
                MessageDocument(Document("b.pdf", "One.Two.", DocumentFacts("PDF", 9, 2, starts=[0, 4]), "f00")),
            ),
        )
    ],
    [
        StoredMessage(
            *("cite", "paper", "", "user", "Cite it"),
            created=132.0,
            documents=(MessageDocument(THREE, DocumentUse(tokens=3), True),),
        )
    ],
)
SEARCHES = {
    "sixteen tok": {"pages"},
    "cafe": {"pages"},
    "alligator": {"pages"},
    "half": {"pages"},
    "naive": {"bird"},
    "賢い": {"bird"},
    "lligat": {"pages"},
    "zebra": set(),  # search leaves thinking out
    "secret": set(),
}
"""What is looked for -> the chats that have it."""


def make(path: Path, schema: int, rows: bool = True) -> None:
    """A file of that schema, with all that its version could write."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA foreign_keys = ON")
        for number in range(schema):
            connection.executescript(SQL[number])
        connection.execute(f"PRAGMA user_version = {schema}")
        for number in range(schema) if rows else ():
            for columns, values in _ROWS[number]:
                table = _TABLES.get(columns) or ("chats" if columns.startswith(CHAT) else "messages")
                connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({values})")


def chats(schema: int) -> list[Chat]:
    """What such a file holds for today's program, the last used first."""
    return sorted((chat for part in _CHATS[:schema] for chat in part), key=lambda chat: -chat.updated)


def messages(schema: int) -> list[StoredMessage]:
    """All of them, oldest first."""
    return [message for part in _MESSAGES[:schema] for message in part]
