"""Chats of LM Studio: its files ``*.conversation.json``.

``messages`` is one list; each message has ``versions``, of which ``currentlySelected`` is the one that what comes next
follows. A version of one step has its ``content``; one of several has ``steps``, whose blocks are text, thinking or
calls of tools. Times are in milliseconds. The shape is as read by github.com/YorkieDev/lm-studio-conversation-converter
(script.js).
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from app.history.records import AnswerStats, StoredMessage, new_id
from app.history.transfer.readers.found import (
    DOCUMENTS,
    MISSING,
    TOOLS,
    FoundChat,
    digest,
    listed,
    made,
    mapped,
    moment,
    text,
)

_MS = 0.001
_SYSTEM = "llm.prediction.systemPrompt"
_THINK = re.compile(r"\s*<think>(.*?)(?:</think>|\Z)\s*", re.DOTALL)


def is_chat(value: dict[str, Any]) -> bool:
    messages = listed(value.get("messages"))
    return isinstance(value.get("messages"), list) and all("versions" in mapped(one) for one in messages[:3])


def chat(value: dict[str, Any]) -> FoundChat:
    created = moment(value.get("createdAt"), _MS)
    used = [moment(value.get(name), _MS) for name in ("userLastMessagedAt", "assistantLastMessagedAt")]
    fields = listed(mapped(value.get("perChatPredictionConfig")).get("fields"))
    system = text(value.get("systemPrompt")) or next(
        (text(one.get("value")) for one in map(mapped, fields) if one.get("key") == _SYSTEM), ""
    )
    left_out: Counter[str] = Counter()
    messages, parent = list[StoredMessage](), ""
    for message in map(mapped, listed(value.get("messages"))):
        versions = list(map(mapped, listed(message.get("versions"))))
        chosen = message.get("currentlySelected")
        below = parent
        for number, version in enumerate(versions):
            if version.get("role") == "system":
                system = system or _words(listed(version.get("content")), left_out)
                continue
            kept = _message(version, parent, created, left_out)
            if kept.content or kept.thinking:
                messages.append(kept)
                below = kept.id if number == chosen or below == parent else below
        parent = below
    key = str(value["createdAt"]) if created else digest(value)
    return FoundChat(
        f"lm-studio:{key}",
        made(value.get("name"), created, max(used), system, parent),
        messages,
        left_out,
        pinned=value.get("pinned") is True,
    )


def _message(version: dict[str, Any], parent: str, created: float, left_out: Counter[str]) -> StoredMessage:
    content = version.get("content")
    plain = content if isinstance(content, str) else _words(listed(content), left_out)
    if version.get("role") == "user":
        return StoredMessage(new_id(), "", parent, "user", plain, created=created)
    words, thinking = [plain], list[str]()
    model = text(mapped(version.get("senderInfo")).get("senderName"))
    for step in map(mapped, listed(version.get("steps"))):
        if step.get("type") == "contentBlock":
            said = _words(listed(step.get("content")), left_out)
            (thinking if mapped(step.get("style")).get("type") == "thinking" else words).append(said)
            model = model or text(mapped(step.get("genInfo")).get("identifier"))
        elif step.get("type") != "debugInfoBlock":
            left_out[TOOLS] += 1
    answer = "\n\n".join(filter(None, words))
    if (thought := _THINK.match(answer)) is not None:
        thinking.append(thought[1].strip())
        answer = answer[thought.end() :]
    return StoredMessage(
        new_id(),
        "",
        parent,
        "assistant",
        answer,
        stats=AnswerStats(model=model),
        created=created,
        thinking="\n\n".join(filter(None, thinking)),
    )


def _words(content: list[Any], left_out: Counter[str]) -> str:
    words = []
    for part in map(mapped, content):
        if part.get("type") == "text":
            words.append(text(part.get("text")))
        elif part.get("type") == "file":
            left_out[MISSING if part.get("fileType") == "image" else DOCUMENTS] += 1
        elif part.get("type") in ("toolCallRequest", "toolCallResult"):
            left_out[TOOLS] += 1
    return "\n".join(words)
