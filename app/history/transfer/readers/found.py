"""A chat that a file has, whichever program wrote it, and the small tools for reading values that may be anything."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from app.documents.records import Document
from app.history.records import LATEST, Chat, StoredMessage, new_id
from app.language import tr
from engine.protocol import ToolConfig

TITLE = 200
"""Characters of a title at most."""
UNTITLED = tr("Chat")
MISSING = tr("pictures that are not in the file")
RECORDINGS = tr("recordings")
TOOLS = tr("tool calls and results")
DOCUMENTS = tr("attached documents")
IN_ANSWERS = tr("pictures in answers")
SOURCES = tr("lists of sources")


class FoundChat(NamedTuple):
    """A chat with its messages, each after its parent. Ids of messages are theirs in the file, or any others."""

    origin: str
    """Whose it is and its id there, as "openai:ID"."""
    chat: Chat
    messages: list[StoredMessage]
    left_out: Counter[str]
    """What it had and Kvasir has no place for, in the plural."""
    folder: str = ""
    """The name of its folder."""
    pinned: bool = False
    archived: bool = False
    tags: tuple[str, ...] = ()
    tools: dict[str, ToolConfig | None] = {}
    folder_documents: Sequence[Document] = ()
    """Documents of the folder, which has them if it is made for the chat."""
    without: Collection[str] = ()
    """Digests of those that the chat goes without."""


class Skipped(NamedTuple):
    """Something in a file that is not imported, with the reason in the plural, as "without messages"."""

    why: str


def made(title: object, created: float, updated: float, system: str = "", leaf: str = "") -> Chat:
    """A chat under a new id."""
    name = " ".join(text(title).split())[:TITLE] or UNTITLED
    return Chat(new_id(), name, created, max(created, updated), system.strip(), leaf=leaf)


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def mapped(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def moment(value: object, unit: float = 1.0) -> float:
    """Seconds since 1970 of a number in ``unit`` seconds; 0.0 for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LATEST / unit:
        return 0.0
    return value * unit


def picture(url: str) -> bytes | None:
    """The file in a ``data:`` URL; None for another one."""
    head, comma, body = url.partition(",")
    if not comma or not head.startswith("data:image/") or not head.endswith(";base64"):
        return None
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return None


def digest(value: dict[str, Any]) -> str:
    """An id for what has none."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:24]


def tags_of(value: object) -> tuple[str, ...]:
    names = (one if isinstance(one, str) else text(mapped(one).get("name")) for one in listed(value))
    return tuple(
        dict.fromkeys(" ".join(name.replace(",", " ").replace('"', " ").split())[:40] for name in names if name)
    )
