"""Kvasir's own file of a chat: JSON with all that the history has of it, every branch included (docs/chat-file.md)."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from app.documents.records import Document, DocumentFacts, DocumentUse, MessageDocument, document
from app.history.records import AnswerStats, Chat, ListedChat, Role, State, StoredMessage, TextSpan
from app.history.store import HistoryStore
from engine.protocol import Overflow, RemoteModel, Sampling, Thinking, ToolCall, ToolConfig, ToolResult

FORMAT = "kvasir.chat"
VERSION = 1


class LaterFormatError(ValueError):
    """A later version of Kvasir wrote the file."""


class DocumentRecord(msgspec.Struct, omit_defaults=True):
    """A document of a message or of a folder. ``use``: what of it the model was given, null where that was not
    decided; ``folder``: it came with the chat's folder; ``left_out``: it is one of the folder that the chat goes
    without."""

    name: str
    text: str
    facts: DocumentFacts = DocumentFacts()
    use: DocumentUse | None = None
    folder: bool = False
    left_out: bool = False

    @property
    def document(self) -> Document:
        return document(self.name, self.text, self.facts)


class MessageRecord(msgspec.Struct, omit_defaults=True):
    """A message; ``parent`` is the id of the one before it, "" for the first."""

    id: str
    role: Role
    content: str
    parent: str = ""
    created: float = 0.0
    state: State = "complete"
    thinking: str = ""
    stats: AnswerStats = AnswerStats()
    spans: list[TextSpan] = []
    pictures: list[bytes] = []
    """Files of pictures, in base64."""
    parts: list[ToolCall | ToolResult] = []
    documents: list[DocumentRecord] = []


class ChatRecord(msgspec.Struct, omit_defaults=True, tag_field="format", tag=FORMAT):
    """A chat with all its messages, in the order in which they came; times are seconds since 1970."""

    version: int
    id: str
    title: str
    created: float
    updated: float
    messages: list[MessageRecord]
    leaf: str = ""
    """The id of the last message of the branch that is shown."""
    system_prompt: str = ""
    sampling: Sampling = Sampling()
    thinking: Thinking = Thinking()
    overflow: Overflow = "stop"
    adapter: str = ""
    servers: list[str] = []
    remote: RemoteModel | None = None
    folder: str = ""
    """The name of its folder."""
    folder_documents: list[DocumentRecord] = []
    """Documents that belong to the folder."""
    pinned: bool = False
    archived: bool = False
    tags: list[str] = []
    tools: dict[str, ToolConfig | None] = {}
    """What answers were told of tools, by the digests that their statistics have."""

    @property
    def chat(self) -> Chat:
        return Chat(
            self.id,
            self.title,
            self.created,
            self.updated,
            self.system_prompt,
            self.sampling,
            self.leaf,
            self.thinking,
            self.overflow,
            self.adapter,
            tuple(self.servers),
            self.remote,
        )

    def stored(self) -> list[StoredMessage]:
        """Its messages as the history has them."""
        return [
            StoredMessage(
                one.id,
                self.id,
                one.parent,
                one.role,
                one.content,
                one.state,
                one.stats,
                tuple(one.spans),
                one.created,
                one.thinking,
                tuple(one.pictures),
                tuple(one.parts),
                tuple(MessageDocument(part.document, part.use, part.folder) for part in one.documents),
            )
            for one in self.messages
        ]


def read(history: HistoryStore, listed: ListedChat, folder: str) -> ChatRecord | None:
    """What the history has of a chat; None where it is gone. ``folder`` is the name of its folder."""
    chat = history.chat(listed.id)
    if chat is None:
        return None
    messages = history.messages(listed.id)
    tools: dict[str, ToolConfig | None] = {}
    for digest in {message.stats.tools for message in messages} - {""}:
        with contextlib.suppress(LookupError):
            tools[digest] = history.tools(listed.id, digest)
    return ChatRecord(
        version=VERSION,
        id=chat.id,
        title=chat.title,
        created=chat.created,
        updated=chat.updated,
        messages=[_message(message) for message in messages],
        leaf=chat.leaf,
        system_prompt=chat.system_prompt,
        sampling=chat.sampling,
        thinking=chat.thinking,
        overflow=chat.overflow,
        adapter=chat.adapter,
        servers=list(chat.servers),
        remote=chat.remote,
        folder=folder,
        folder_documents=[
            _document(each.document, left_out=each.id in chat.left_out)
            for each in (history.folder_documents(listed.folder) if folder else ())
        ],
        pinned=listed.pinned,
        archived=listed.archived,
        tags=list(listed.tags),
        tools=tools,
    )


def to_json(record: ChatRecord) -> bytes:
    """The file of a chat."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1)


def from_json(value: dict[str, Any]) -> ChatRecord:
    """The chat of a decoded file. Raises LaterFormatError, msgspec.ValidationError."""
    if isinstance(version := value.get("version"), int) and version > VERSION:
        raise LaterFormatError
    return msgspec.convert(value, ChatRecord)


def _message(message: StoredMessage) -> MessageRecord:
    return MessageRecord(
        id=message.id,
        role=message.role,
        content=message.content,
        parent=message.parent,
        created=message.created,
        state=message.state,
        thinking=message.thinking,
        stats=message.stats,
        spans=list(message.spans),
        pictures=list(message.pictures),
        parts=list(message.parts),
        documents=[_document(each.document, each.use, each.folder) for each in message.documents],
    )


def _document(
    each: Document, use: DocumentUse | None = None, folder: bool = False, left_out: bool = False
) -> DocumentRecord:
    return DocumentRecord(each.name, each.text, each.facts, use, folder, left_out)
