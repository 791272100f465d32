"""Chats of Open WebUI's export: a list of chats, each with ``chat.history.messages`` by their ids and ``currentId``.

The shape is as github.com/open-webui/open-webui writes it (Settings > Chats > Export): ``parentId`` and
``childrenIds`` make the tree, times of messages are in seconds, ``chat.timestamp`` is in milliseconds.
"""

from __future__ import annotations

import re
from collections import Counter
from html import unescape
from typing import Any

from app.history.records import AnswerStats, StoredMessage
from app.history.transfer.readers.found import (
    DOCUMENTS,
    IN_ANSWERS,
    MISSING,
    SOURCES,
    TOOLS,
    FoundChat,
    digest,
    listed,
    made,
    mapped,
    moment,
    picture,
    tags_of,
    text,
)

_DETAILS = re.compile(r'<details type="(\w+)"([^>]*)>\s*(?:<summary>.*?</summary>)?(.*?)</details>\s*', re.DOTALL)
_DURATION = re.compile(r'duration="(\d+(?:\.\d+)?)"')


def is_chat(value: dict[str, Any]) -> bool:
    inner = mapped(value.get("chat")) or value
    return isinstance(mapped(inner.get("history")).get("messages"), dict) or (
        "chat" in value and isinstance(inner.get("messages"), list)
    )


def chat(value: dict[str, Any]) -> FoundChat:
    inner = mapped(value.get("chat")) or value
    created = moment(value.get("created_at")) or moment(inner.get("timestamp"), 0.001)
    nodes = mapped(mapped(inner.get("history")).get("messages")) or _chained(listed(inner.get("messages")))
    left_out: Counter[str] = Counter()
    messages, systems = (
        list[StoredMessage](),
        [text(inner.get("system")), text(mapped(inner.get("params")).get("system"))],
    )
    kept: dict[str, str] = {}
    """The message that each node is, or hangs below."""
    for key in _ordered(nodes):
        node = mapped(nodes[key])
        parent = kept.get(text(node.get("parentId")), "")
        if node.get("role") not in ("user", "assistant"):
            systems += [_words(node.get("content"), left_out)[0]] if node.get("role") == "system" else []
            left_out.update({TOOLS: 1} if node.get("role") == "tool" else {})
            kept[key] = parent
            continue
        messages.append(_message(key, parent, node, created, left_out))
        kept[key] = key
    leaf = kept.get(text(mapped(inner.get("history")).get("currentId")), "")
    ident = text(value.get("id")) or text(inner.get("id")) or digest(value)
    title, updated = value.get("title") or inner.get("title"), moment(value.get("updated_at"))
    return FoundChat(
        f"open-webui:{ident}",
        made(title, created, updated, next(filter(None, systems), ""), leaf),
        messages,
        left_out,
        archived=value.get("archived") is True,
        pinned=value.get("pinned") is True,
        tags=tags_of(mapped(value.get("meta")).get("tags") or inner.get("tags")),
    )


def _message(key: str, parent: str, node: dict[str, Any], created: float, left_out: Counter[str]) -> StoredMessage:
    words, pictures = _words(node.get("content"), left_out)
    pictures += _files(listed(node.get("files")), left_out)
    when = moment(node.get("timestamp")) or created
    if node["role"] == "user":
        return StoredMessage(key, "", parent, "user", words, created=when, pictures=tuple(pictures))
    left_out.update({IN_ANSWERS: len(pictures)} if pictures else {})
    left_out.update({SOURCES: 1} if listed(node.get("sources")) else {})
    thinking, seconds = list[str](), 0.0
    for kind, head, inside in _DETAILS.findall(words):
        if kind == "reasoning":
            thinking.append("\n".join(line.removeprefix("> ") for line in unescape(inside).strip().split("\n")))
            seconds += float(found[1]) if (found := _DURATION.search(head)) else 0.0
        else:
            left_out[TOOLS] += 1
    stats = AnswerStats(model=text(node.get("model")) or text(node.get("modelName")), thought_s=seconds)
    return StoredMessage(
        key,
        "",
        parent,
        "assistant",
        _DETAILS.sub("", words).strip() if thinking or "<details type=" in words else words,
        "interrupted" if node.get("done") is False else "complete",
        stats,
        created=when,
        thinking="\n\n".join(thinking),
    )


def _words(content: object, left_out: Counter[str]) -> tuple[str, list[bytes]]:
    """The words and pictures of a content, which is text or a list of parts as OpenAI's API has them."""
    if not isinstance(content, list):
        return text(content), []
    words, pictures = list[str](), list[bytes]()
    for part in map(mapped, content):
        if part.get("type") == "text":
            words.append(text(part.get("text")))
        elif part.get("type") == "image_url":
            _add(text(mapped(part.get("image_url")).get("url")), pictures, left_out)
        else:
            left_out[DOCUMENTS] += 1
    return "\n".join(words), pictures


def _files(files: list[Any], left_out: Counter[str]) -> list[bytes]:
    pictures: list[bytes] = []
    for file in map(mapped, files):
        if file.get("type") == "image":
            _add(text(file.get("url")), pictures, left_out)
        else:
            left_out[DOCUMENTS] += 1
    return pictures


def _add(url: str, pictures: list[bytes], left_out: Counter[str]) -> None:
    if (data := picture(url)) is not None:
        pictures.append(data)
    else:
        left_out[MISSING] += 1


def _chained(messages: list[Any]) -> dict[str, Any]:
    """The list of an early version, each message below the one before it."""
    nodes, before = dict[str, Any](), ""
    for number, message in enumerate(map(mapped, messages)):
        key = text(message.get("id")) or str(number)
        nodes[key] = {**message, "parentId": message.get("parentId") or before}
        before = key
    return nodes


def _ordered(nodes: dict[str, Any]) -> list[str]:
    """The ids, each after its parent's; one whose parent is missing, or its own ancestor, begins the chat."""
    children: dict[str, list[str]] = {}
    for key, node in nodes.items():
        parent = text(mapped(node).get("parentId"))
        children.setdefault(parent if parent in nodes else "", []).append(key)
    order, seen = list[str](), set[str]()
    for begin in [*children.get("", []), *nodes]:
        todo = [begin]
        while todo:
            key = todo.pop()
            if key not in seen:
                seen.add(key)
                order.append(key)
                todo += reversed(children.get(key, []))
    return order
