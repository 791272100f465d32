"""Reading the history's rows: a cell that cannot be understood gives its default and is named, whatever is in it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, get_args

import msgspec

from app.history.records import LATEST, AnswerStats, Chat, ListedChat, Role, State, StoredMessage, TextSpan
from app.language import tr
from engine.protocol import Overflow, RemoteModel, Sampling, Thinking, ToolCall, ToolResult

CHAT = (
    "id",
    "title",
    "created",
    "updated",
    "system_prompt",
    "sampling",
    "leaf",
    "thinking",
    "overflow",
    "adapter",
    "servers",
    "remote",
    "left_out",
)
LISTED = ("id", "title", "updated", "folder", "pinned", "archived", "tags")
MESSAGE = ("id", "chat", "parent", "role", "content", "state", "stats", "spans", "created", "thinking", "parts")


class Bad(NamedTuple):
    """A cell that was replaced: where it stands, and the SQL value to put there in its place."""

    table: str
    row: str
    column: str
    value: str | float


def text(raw: bytes) -> str:
    """Decode a text of SQLite: bytes that are not UTF-8 become lone surrogates, which :class:`_Row` finds."""
    return raw.decode(errors="surrogateescape")


def plain(cell: object) -> str:
    """The text without the lone surrogates of :func:`text`, which neither SQLite nor Qt takes."""
    raw = cell if isinstance(cell, bytes) else str(cell).encode(errors="surrogateescape")
    return raw.decode(errors="replace")


def chat(row: tuple[Any, ...], bad: list[Bad]) -> Chat:
    """A row of the columns CHAT; what was replaced is added to ``bad``."""
    cells = _Row("chats", CHAT, row, bad)
    return Chat(
        cells.id,
        cells.text("title", tr("Chat")),
        cells.moment("created"),
        cells.moment("updated"),
        cells.text("system_prompt"),
        cells.packed("sampling", Sampling()),
        cells.text("leaf"),
        cells.packed("thinking", Thinking()),
        row[CHAT.index("overflow")] if row[CHAT.index("overflow")] in get_args(Overflow) else "stop",
        cells.text("adapter"),
        cells.listed("servers", str),
        cells.remote("remote"),
        cells.listed("left_out", str),
    )  # an overflow policy that is not known is a later version's


def listed(row: tuple[Any, ...], bad: list[Bad]) -> ListedChat:
    """A row of the columns LISTED; what was replaced is added to ``bad``."""
    chat_id, title, updated, folder, pinned, archived, tags = row
    texts = (chat_id, title, folder)
    if tags == "[]" and type(updated) is float and 0 <= updated < LATEST and all(map(_is_plain, texts)):
        return ListedChat(chat_id, title, updated, folder, bool(pinned), bool(archived))  # thousands of them
    cells = _Row("chats", LISTED, row, bad)
    return ListedChat(
        cells.id,
        cells.text("title", tr("Chat")),
        cells.moment("updated"),
        cells.text("folder"),
        bool(pinned),
        bool(archived),
        cells.listed("tags", str),
    )


def message(row: tuple[Any, ...], bad: list[Bad]) -> StoredMessage:
    """A row of the columns MESSAGE; what was replaced is added to ``bad``."""
    cells = _Row("messages", MESSAGE, row, bad)
    content = cells.text("content")
    return StoredMessage(
        cells.id,
        cells.text("chat"),
        cells.text("parent"),
        cells.one_of("role", get_args(Role), "assistant"),
        content,
        cells.one_of("state", get_args(State), "interrupted"),
        cells.packed("stats", AnswerStats()),
        cells.spans("spans", len(content)),
        cells.moment("created"),
        cells.text("thinking"),
        parts=cells.listed("parts", ToolCall | ToolResult),
    )


class _Row:
    def __init__(self, table: str, names: tuple[str, ...], row: tuple[Any, ...], bad: list[Bad]) -> None:
        self._table, self._cells, self._bad = table, dict(zip(names, row, strict=True)), bad
        self.id = plain(self._cells["id"])

    def text(self, name: str, default: str = "") -> str:
        cell = self._cells[name]
        if isinstance(cell, str) and (cell.isascii() or encodable(cell)):
            return cell
        return self._replaced(name, plain(cell) if cell is not None else default)

    def moment(self, name: str) -> float:
        cell = self._cells[name]
        if isinstance(cell, int | float) and math.isfinite(cell) and 0 <= cell < LATEST:
            return float(cell)
        return self._replaced(name, 0.0)

    def one_of(self, name: str, known: tuple[str, ...], default: Any) -> Any:
        cell = self._cells[name]
        return cell if isinstance(cell, str) and cell in known else self._replaced(name, default)

    def packed(self, name: str, default: Any) -> Any:
        """A struct, as JSON."""
        try:
            return msgspec.json.decode(self._cells[name], type=type(default))
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
            self._replaced(name, "{}")
            return default

    def listed(self, name: str, kind: Any) -> tuple[Any, ...]:
        """Values of one kind, as JSON."""
        try:
            return tuple(msgspec.json.decode(self._cells[name], type=list[kind]))
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
            self._replaced(name, "[]")
            return ()

    def remote(self, name: str) -> RemoteModel | None:
        try:
            return msgspec.json.decode(self._cells[name], type=RemoteModel | None)
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
            self._replaced(name, "null")
            return None

    def spans(self, name: str, chars: int) -> tuple[TextSpan, ...]:
        """``chars``: of the text that they cover."""
        try:
            spans = tuple(msgspec.json.decode(self._cells[name], type=list[TextSpan]))
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
            spans = (TextSpan("", -1),)
        if all(0 <= span.chars <= chars for span in spans):
            return spans
        self._replaced(name, "[]")
        return ()

    def _replaced(self, name: str, value: Any) -> Any:
        self._bad.append(Bad(self._table, self.id, name, value))
        return value


def _is_plain(cell: object) -> bool:
    return isinstance(cell, str) and cell.isascii()


def encodable(words: str) -> bool:
    """True if UTF-8 can encode it: no half of a surrogate pair is in it."""
    try:
        words.encode()
    except UnicodeEncodeError:
        return False
    return True
