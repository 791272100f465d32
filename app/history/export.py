"""A chat as a Markdown file."""

from __future__ import annotations

import base64
import html
import re
import time
from collections.abc import Sequence

from app.documents.records import Document, DocumentUse, kind_of, size_of
from app.history.records import Chat, ListedChat, StoredMessage, thought_for
from app.history.sent import without_repeats
from app.history.store import HistoryStore
from app.history.tree import MessageTree
from app.language import plural, tr
from engine.base.lines import split_lines
from engine.protocol import ToolCall, ToolResult

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that Windows has for devices."""
_MARKS, _ESCAPED = re.compile(r"([\\*_`\[\]<>])"), r"\\\1"
"""What Markdown would take for marks, and what it is written as."""
_UNSAFE = re.compile(r'[\\/:*?"<>|\x00-\x1f]+')


def to_markdown(chat: Chat, path: Sequence[StoredMessage]) -> str:
    """``path`` is the branch to export, first message first. Answers stand as written, questions under a heading."""
    day = time.strftime("%Y-%m-%d", time.localtime(chat.created))
    lines = [f"# {chat.title}", "", f"*{day}*", ""]
    if chat.system_prompt:
        lines += [f"## {tr('System')}", "", _closed(chat.system_prompt), ""]
    for message in without_repeats(path):
        if message.role != "tool":
            lines += [f"## {speaker(message)}", ""]
        if message.thinking:
            head = thought_for(message.stats.thought_s)
            lines += ["<details>", f"<summary>{head}</summary>", "", _quoted(message.thinking), "", "</details>", ""]
        for data in message.pictures:
            lines += [_picture(data), ""]
        for each in message.documents:
            lines += [f"*{_MARKS.sub(_ESCAPED, document_line(each.document, each.use))}*", ""]
        lines += [_closed(message.content.rstrip()), ""] if message.content or not message.parts else []
        for part in message.parts:
            lines += _part(part)
        if message.state == "interrupted":
            lines += [f"*({tr('interrupted')})*", ""]
    return "\n".join(lines)


def chat_to_markdown(history: HistoryStore, chat: Chat) -> str:
    """The branch that the chat shows."""
    return to_markdown(chat, MessageTree(history.messages(chat.id), chat.leaf).path())


def unsaved_to_markdown(history: HistoryStore) -> str:
    """Every chat of which something is not in the file, and what was not sent there, but for documents that are files
    of their own."""
    parts = []
    for chat_id in history.unsaved():
        chat, draft = history.chat(chat_id), history.draft(chat_id)
        if chat is not None:
            parts.append(chat_to_markdown(history, chat))
        pasted = [each.document.text for each in draft.documents if each.pasted and each.document is not None]
        said = [*(text for text in (draft.text, draft.before, *pasted) if text), *map(_picture, draft.pictures)]
        parts += [f"## {tr('Not sent')}\n\n{text}\n" for text in said]
    return "\n".join(parts)


def file_name(chat: Chat | ListedChat, suffix: str = ".md") -> str:
    """A name for the exported file that every file system takes."""
    name = " ".join(_UNSAFE.sub(" ", chat.title).split()).encode("utf-8", "replace").decode()
    name = name.strip(" .")[:80].rstrip(" .") or tr("chat")
    return f"{name}_{suffix}" if _RESERVED.fullmatch(name) else name + suffix


def speaker(message: StoredMessage) -> str:
    """Who wrote a message; a person's words in an answer are not given out as the model's alone."""
    if message.role == "user":
        return tr("You")
    name = message.stats.model or tr("Answer")
    return tr("{name} (edited)", name=name) if message.stats.edited else name


def document_line(document: Document, use: DocumentUse | None) -> str:
    """A document by its name; its text is not exported."""
    name, kind, size = " ".join(document.name.split()), kind_of(document.facts), size_of(document.facts)
    if use is None or use.passages is None:
        return tr("Document: {name} ({kind}, {size})", name=name, kind=kind, size=size)
    return plural(
        "Document: {name} ({kind}, {size}; {sent:,} of 1 passage sent)",
        "Document: {name} ({kind}, {size}; {sent:,} of {n:,} passages sent)",
        use.of,
        name=name,
        kind=kind,
        size=size,
        sent=len(use.passages),
    )


def part_title(part: ToolCall | ToolResult) -> str:
    """What a call of a tool or a result is, and of which tool."""
    if isinstance(part, ToolCall):
        return tr("Call of {tool}", tool=part.name) if part.name else tr("Call", "of a tool")
    return tr("Result of {tool}", tool=part.name) if part.name else tr("Result")


def _part(part: ToolCall | ToolResult) -> list[str]:
    """A call or a result, folded."""
    if isinstance(part, ToolCall):
        text, files = part.arguments, list[bytes]()
    else:
        text, files = part.content, part.pictures
    shown = [line for data in files for line in (_picture(data), "")]
    name = html.escape(part_title(part))
    return ["<details>", f"<summary>{name}</summary>", "", _quoted(_fenced(text)), "", *shown, "</details>", ""]


def _fenced(text: str) -> str:
    """The text as code, in a fence that is longer than any in it."""
    marks = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{marks}\n{text.rstrip()}\n{marks}"


def picture_kind(data: bytes) -> str:
    """The kind of a picture, such as "png", which its first bytes say."""
    kinds = {b"\x89PNG": "png", b"GIF8": "gif", b"BM": "bmp", b"RIFF": "webp"}
    return next((kind for begin, kind in kinds.items() if data.startswith(begin)), "jpeg")


def _picture(data: bytes) -> str:
    """A picture in the file itself."""
    return f"![{tr('picture')}](data:image/{picture_kind(data)};base64,{base64.b64encode(data).decode()})"


def _quoted(text: str) -> str:
    """The text as a block quote, with which a code fence that the thinking left open ends."""
    return "\n".join(f"> {line}".rstrip() for line in text.rstrip().split("\n"))


def _closed(text: str) -> str:
    """The text with the end of a code fence that it left open, which would else take the rest of the chat."""
    fence = ""
    for line in split_lines(text):
        if (found := _FENCE.match(line)) is None:
            continue
        marks, rest = found.groups()
        if fence:
            fence = "" if marks.startswith(fence) and not rest.strip() else fence
        elif marks[0] == "~" or "`" not in rest:
            fence = marks
    return f"{text}\n{fence}" if fence else text
