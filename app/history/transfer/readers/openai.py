"""Chats of OpenAI's export: ``conversations.json``, alone or in its zip.

Each conversation has a ``mapping`` of nodes with ``parent`` and ``children``, whose messages have an author's role and
a content of some type, and ``current_node``, where it ends. The shape is as described and read by
github.com/mitkury/chatgpt-export-parser (docs/chatgpt-data-export-format.md).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from app.history.records import AnswerStats, StoredMessage, new_id
from app.history.transfer.readers.found import (
    DOCUMENTS,
    IN_ANSWERS,
    MISSING,
    RECORDINGS,
    TOOLS,
    FoundChat,
    digest,
    listed,
    made,
    mapped,
    moment,
    text,
)

Files = Callable[[str], bytes | None]
"""The file of the export whose name begins so."""
_CITATION = re.compile("\ue200[^\ue201]*\ue201")
"""Marks of sources, in characters that no font has."""


class _Run(NamedTuple):
    """Messages of the model one after another, which are one answer."""

    content: tuple[str, ...] = ()
    thinking: tuple[str, ...] = ()
    thought_s: float = 0.0
    model: str = ""
    created: float = 0.0


def is_chat(value: dict[str, Any]) -> bool:
    return isinstance(value.get("mapping"), dict)


def chat(value: dict[str, Any], files: Files) -> FoundChat:
    """The chat of a conversation; hidden messages are left out, those of tools counted."""
    created = moment(value.get("create_time"))
    tree = _Tree(mapped(value["mapping"]), files, created)
    key = text(value.get("conversation_id")) or text(value.get("id")) or digest(value)
    return FoundChat(
        f"openai:{key}",
        made(
            value.get("title"),
            created,
            moment(value.get("update_time")),
            tree.system,
            tree.ends.get(text(value.get("current_node")), ""),
        ),
        tree.messages,
        +tree.left_out,
        archived=value.get("is_archived") is True,
        pinned=value.get("is_starred") is True,
    )


class _Tree:
    """The messages of a mapping, found by going down from its roots."""

    def __init__(self, nodes: dict[str, Any], files: Files, created: float) -> None:
        self._nodes = {key: mapped(node) for key, node in nodes.items()}
        self._files, self._created = files, created
        self.messages: list[StoredMessage] = []
        self.left_out: Counter[str] = Counter()
        self.system = ""
        self.ends: dict[str, str] = {}
        """The id of the message that each node became a part of."""
        self._emitted: dict[int, tuple[_Run | None, str]] = {}
        self._children: dict[str, list[str]] = {}
        for key, node in self._nodes.items():
            parent = text(node.get("parent"))
            self._children.setdefault(parent if parent in self._nodes else "", []).append(key)
        for parent, keys in self._children.items():
            order = {
                key: at for at, key in enumerate(listed(self._nodes.get(parent, {}).get("children"))) if key in keys
            }
            keys.sort(key=lambda key: order.get(key, len(order)))
        self._descend()

    def _descend(self) -> None:
        places: dict[str, tuple[str, _Run | None]] = {}
        todo: list[tuple[str, str, _Run | None]] = [(key, "", None) for key in reversed(self._children.get("", []))]
        while todo:
            key, anchor, run = todo.pop()
            anchor, run = self._take(key, anchor, run)
            children = self._children.get(key, [])
            if not children and run is not None:
                self._emit(anchor, run)
            places[key] = anchor, run
            todo += [(child, anchor, run) for child in reversed(children)]
        for key, (anchor, run) in places.items():
            self.ends[key] = self._emitted.get(id(run), (None, anchor))[1]

    def _take(self, key: str, anchor: str, run: _Run | None) -> tuple[str, _Run | None]:
        """Where the branch stands behind a node: the last message before the model's, and what the model said since."""
        message = mapped(self._nodes[key].get("message"))
        meta, content = mapped(message.get("metadata")), mapped(message.get("content"))
        role, kind = text(mapped(message.get("author")).get("role")), text(content.get("content_type"))
        if not message or meta.get("is_visually_hidden_from_conversation") is True:
            return anchor, run
        created = moment(message.get("create_time")) or self._created
        if role == "user" and kind not in ("user_editable_context", "model_editable_context"):
            words, pictures = self._content(kind, content)
            documents = (text(mapped(one).get("mime_type")) for one in listed(meta.get("attachments")))
            self.left_out[DOCUMENTS] += sum(not kind.startswith("image/") for kind in documents)
            if not words and not pictures:
                return anchor, run
            parent = self._emit(anchor, run) if run is not None else anchor
            asked = StoredMessage(new_id(), "", parent, "user", words, created=created, pictures=tuple(pictures))
            self.messages.append(asked)
            return asked.id, None
        if role == "assistant":
            return anchor, self._answered(run, message, kind, content, meta, created)
        if role == "tool":
            self.left_out[TOOLS] += 1
        elif role == "system" and not self.system:
            self.system = self._content(kind, content)[0]
        return anchor, run

    def _answered(
        self,
        run: _Run | None,
        message: dict[str, Any],
        kind: str,
        content: dict[str, Any],
        meta: dict[str, Any],
        created: float,
    ) -> _Run | None:
        before = run or _Run(created=created)
        model = text(meta.get("model_slug")) or before.model
        if kind == "thoughts":
            thoughts = (mapped(one) for one in listed(content.get("thoughts")))
            lines = tuple(words for one in thoughts if (words := text(one.get("content")) or text(one.get("summary"))))
            return before._replace(thinking=before.thinking + lines, model=model) if lines else run
        if kind == "reasoning_recap":
            return before._replace(thought_s=moment(meta.get("finished_duration_sec"))) if run is not None else run
        if text(message.get("recipient")) not in ("", "all"):
            self.left_out[TOOLS] += 1
            return run
        words, pictures = self._content(kind, content)
        self.left_out.update({IN_ANSWERS: len(pictures)} if pictures else {})
        if not words:
            return run
        return before._replace(content=(*before.content, words), model=model)

    def _content(self, kind: str, content: dict[str, Any]) -> tuple[str, list[bytes]]:
        """The words and the pictures of a message's content."""
        if kind == "code":
            return f"```{text(content.get('language')).replace('unknown', '')}\n{text(content.get('text'))}\n```", []
        words, pictures = list[str](), list[bytes]()
        for part in listed(content.get("parts")) or [text(content.get("text"))]:
            if isinstance(part, str):
                words.append(_CITATION.sub("", part))
                continue
            what, pointer = text(mapped(part).get("content_type")), text(mapped(part).get("asset_pointer"))
            if what == "audio_transcription":
                words.append(text(part.get("text")))
            elif what == "image_asset_pointer":
                data = self._files(pointer.rpartition("/")[2]) if pointer else None
                if data is None:
                    self.left_out[MISSING] += 1
                else:
                    pictures.append(data)
            elif "audio" in what or "video" in what:
                self.left_out[RECORDINGS] += 1
        return "\n".join(filter(None, words)).strip(), pictures

    def _emit(self, anchor: str, run: _Run) -> str:
        """The id of the message that an answer became, which may have several continuations."""
        if id(run) in self._emitted:
            return self._emitted[id(run)][1]
        stats = AnswerStats(model=run.model, thought_s=run.thought_s)
        content, thinking = "\n\n".join(run.content), "\n\n".join(run.thinking)
        answer = StoredMessage(
            new_id(), "", anchor, "assistant", content, "complete", stats, created=run.created, thinking=thinking
        )
        self.messages.append(answer)
        self._emitted[id(run)] = run, answer.id  # which keeps the run, and so its id
        return answer.id
