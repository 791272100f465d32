"""The formats in which chats are exported."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from app.history.export import to_markdown
from app.history.records import StoredMessage
from app.history.transfer.chat_file import ChatRecord, to_json
from app.history.tree import MessageTree


class Format(NamedTuple):
    title: str
    suffix: str
    render: Callable[[ChatRecord], bytes]
    """The bytes of a chat's file; any thread may ask."""


def _path(record: ChatRecord) -> list[StoredMessage]:
    """The branch that the chat shows."""
    return MessageTree(record.stored(), record.leaf).path()


def _markdown(record: ChatRecord) -> bytes:
    return _encoded(to_markdown(record.chat, _path(record)))


def _html(record: ChatRecord) -> bytes:
    from app.history.transfer.html import to_html  # the parser of Markdown, when it is needed

    return _encoded(to_html(record.chat, _path(record)))


def _pdf(record: ChatRecord) -> bytes:
    from app.history.transfer.pdf import to_pdf  # the same

    return to_pdf(record.chat, _path(record))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


FORMATS = {
    "markdown": Format("Markdown", ".md", _markdown),
    "html": Format("HTML", ".html", _html),
    "pdf": Format("PDF", ".pdf", _pdf),
    "json": Format("JSON", ".json", to_json),
}


def format_of(name: str) -> Format:
    """The format that a file's name asks for; Markdown where it asks for none."""
    return next((each for each in FORMATS.values() if name.casefold().endswith(each.suffix)), FORMATS["markdown"])
