"""Records of the history: chats, and messages that form a tree by parent."""

from __future__ import annotations

import time
import uuid
from typing import Literal, NamedTuple

import msgspec

from app.documents.records import Document, MessageDocument
from app.language import tr
from engine.protocol import (
    FinishReason,
    Overflow,
    RemoteModel,
    Sampling,
    Thinking,
    Timings,
    ToolCall,
    ToolResult,
    Usage,
)

Role = Literal["user", "assistant", "tool"]
State = Literal["complete", "streaming", "interrupted"]
Tint = Literal["", "accepted", "corrected"]
LATEST = 32_503_680_000.0
"""The year 3000, in seconds since 1970: every system's calendar reaches that far."""


class TextSpan(NamedTuple):
    """A run of ``chars`` characters whose tokens came from the same place; "" is plain decoding.

    ``by`` is the proposer of accepted draft tokens, "" where that is not known.
    """

    tint: Tint
    chars: int
    by: str = ""


class OmittedContext(msgspec.Struct, frozen=True, omit_defaults=True):
    """Part of the conversation that the model did not see when it gave an answer.

    "drop_middle": the messages [first, last) of the branch, counted from 0 without the system prompt, ``tokens`` in
    all. "window": it saw the first ``sinks`` tokens and the last ``window`` ones.
    """

    policy: Literal["drop_middle", "window"]
    first: int = 0
    last: int = 0
    tokens: int = 0
    sinks: int = 0
    window: int = 0


class Repeat(msgspec.Struct, frozen=True, omit_defaults=True):
    """Outcome of running an answer again exactly: ``of`` is its id, ``verdict`` a few words."""

    of: str
    same: bool
    verdict: str


class Beside(msgspec.Struct, frozen=True, omit_defaults=True):
    """Column of an answer that was asked beside others to the same message; those of one ``group`` stand together."""

    group: str
    place: int
    """Its column, from 0."""
    heading: str
    chosen: bool = False
    """True once the person chose which of them the chat goes on from: they are versions like any other since."""


class AnswerStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """Request and course of an answer. Timings are absent while it streams or if it was interrupted."""

    sampling: Sampling = Sampling()
    """Sampling that was asked for, the seed included, so that it can be run again exactly."""
    thinking: Thinking = Thinking()
    """Thinking setting that was asked for."""
    overflow: Overflow = "stop"
    """Overflow policy that was asked for."""
    adapter: str = ""
    """Name of the LoRA adapter that was asked for and answered, "" for the model alone."""
    servers: list[str] = []
    """Names of the MCP servers whose tools it could call."""
    tools: str = ""
    """Digest of what it was told of those tools, which the history has (:meth:`HistoryStore.tools`)."""
    remote: RemoteModel | None = None
    """The model of another server that was asked; None for that of this machine."""
    cut: OmittedContext | None = None
    diverged: int | None = None
    """The first token at which the prompt left the conversation that it went on from; None where it did not."""
    divergence: str = ""
    """Reason the prompt left it."""
    thought_s: float = 0.0
    """Seconds of thinking before its first content."""
    model: str = ""
    reason: FinishReason | None = None
    detail: str = ""
    usage: Usage | None = None
    timings: Timings | None = None
    repeat: Repeat | None = None
    """The verdict on an answer that was run again exactly, once it has ended."""
    edited: bool = False
    """True if the person wrote it: all of it, or what stands before ``continued_at``."""
    continued_at: int = 0
    """Characters (thinking and text) before its last continuation, of which the figures are; 0: not continued."""
    begun_by: str = ""
    """The model that wrote what stands before ``continued_at``, where that was another one."""
    system: str | None = None
    """System prompt that it was asked with; None for that of its chat."""
    beside: Beside | None = None
    """Its column, where it was asked beside others."""

    @property
    def settings(self) -> AnswerStats:
        """What it was asked with, and nothing of its course."""
        return AnswerStats(
            sampling=self.sampling,
            thinking=self.thinking,
            overflow=self.overflow,
            adapter=self.adapter,
            servers=self.servers,
            remote=self.remote,
            system=self.system,
        )


class Chat(NamedTuple):
    """``created`` and ``updated`` are seconds since 1970; ``leaf`` is the message shown last."""

    id: str
    title: str
    created: float
    updated: float
    system_prompt: str = ""
    sampling: Sampling = Sampling()
    leaf: str = ""
    thinking: Thinking = Thinking()
    overflow: Overflow = "stop"
    """Policy for a conversation that outgrows the context."""
    adapter: str = ""
    """The name of the LoRA adapter that answers, "" for the model alone."""
    servers: tuple[str, ...] = ()
    """The names of the MCP servers whose tools can be called; none: tools are off."""
    remote: RemoteModel | None = None
    """The model of another server that answers; None for that of this machine."""
    left_out: tuple[str, ...] = ()
    """The ids of the documents of its folder that it goes without."""

    @property
    def settings(self) -> AnswerStats:
        """What its next answer is asked with."""
        return AnswerStats(
            sampling=self.sampling,
            thinking=self.thinking,
            overflow=self.overflow,
            adapter=self.adapter,
            servers=list(self.servers),
            remote=self.remote,
        )


class Folder(NamedTuple):
    """A folder of the list of chats."""

    id: str
    name: str
    folded: bool = False
    """True if the list shows none of its chats."""
    documents: int = 0
    """Number of documents that belong to it."""


class FolderDocument(NamedTuple):
    """A document that belongs to a folder: every question in it is asked with it. ``id`` stays when the file is read
    again."""

    id: str
    document: Document
    path: str = ""
    """The file that was read, "" where it is not known."""
    stamp: str = ""
    """Time and size of the file when it was read, "" where they are not known."""


class ListedChat(NamedTuple):
    """A chat as the list shows it; ``updated`` is in seconds since 1970."""

    id: str
    title: str
    updated: float
    folder: str = ""
    """The id of its folder, "" for none."""
    pinned: bool = False
    archived: bool = False
    """True if it is kept out of the list; a search finds it."""
    tags: tuple[str, ...] = ()


class StoredMessage(NamedTuple):
    id: str
    chat: str
    parent: str
    """Empty for the first message of a chat."""
    role: Role
    content: str
    state: State = "complete"
    stats: AnswerStats = AnswerStats()
    spans: tuple[TextSpan, ...] = ()
    created: float = 0.0
    thinking: str = ""
    """Thinking of an answer before its content."""
    pictures: tuple[bytes, ...] = ()
    """Files of pictures that a message of the person shows, before its text."""
    parts: tuple[ToolCall | ToolResult, ...] = ()
    """The calls of tools behind an answer's text, or what a message of the role "tool" is: their results."""
    documents: tuple[MessageDocument, ...] = ()
    """Documents of a message of the person, which the model reads before its text."""

    @property
    def calls(self) -> list[ToolCall]:
        return [part for part in self.parts if isinstance(part, ToolCall)]

    @property
    def results(self) -> list[ToolResult]:
        return [part for part in self.parts if isinstance(part, ToolResult)]

    @property
    def wants_results(self) -> bool:
        """True if it ended with calls, whose results it is to be followed by."""
        return bool(self.calls) and self.state == "complete" and self.stats.reason == "stop"

    @property
    def unfinished(self) -> bool:
        """True for an answer that its model did not end, so that it can go on."""
        if self.role != "assistant" or self.state == "streaming" or self.calls:
            return False
        cut = self.state == "interrupted" or self.stats.reason in ("length", "cancelled", "memory")
        return cut or (self.stats.edited and self.stats.reason is None)


class Attached:
    """A file of the message that is being written. Whoever reads it puts in what comes of that: ``document``, or
    ``failure``, a sentence. ``pasted``: it was text on the clipboard, and can go back into the message. ``path`` is
    the file, "" for none; ``gone``: it is not there any more, though it was read."""

    def __init__(self, name: str, document: Document | None = None, pasted: bool = False, path: str = "") -> None:
        self.name, self.document, self.pasted, self.path = name, document, pasted, path
        self.failure = ""
        self.gone = False


class Draft(NamedTuple):
    """Text that was typed and not sent."""

    text: str = ""
    edited: str = ""
    """The id of the message that it would take the place of, "" for none."""
    before: str = ""
    """Text that was typed before that edit began, and comes back after it."""
    pictures: tuple[bytes, ...] = ()
    """Pictures of the message."""
    documents: tuple[Attached, ...] = ()
    """Documents of the message, some of which may still be read."""
    begins: str = ""
    """The id of the message to which it begins the answer, "" for none; the history does not keep it."""


def attached(message: StoredMessage) -> tuple[Attached, ...]:
    """The documents of a message, for the one that takes its place; those of a folder come by themselves."""
    return tuple(Attached(each.document.name, each.document) for each in message.documents if not each.folder)


class SearchHit(NamedTuple):
    """A chat that a search found; ``excerpt`` is the place in its text, "" when only the title matched."""

    chat: ListedChat
    excerpt: str
    message: str = ""
    """The id of the message with that place."""


def thought_for(seconds: float) -> str:
    """Format the time of thinking, such as "Thought for 12 s"; below half a second no number is given."""
    if seconds < 0.5:
        return tr("Thought for a moment")
    whole = round(seconds)
    if whole < 60:
        return tr("Thought for {seconds} s", seconds=whole)
    return tr("Thought for {minutes} min {seconds} s", minutes=whole // 60, seconds=whole % 60)


def now() -> float:
    """Seconds since 1970, within what can be read back whatever a wrong clock says."""
    return min(max(0.0, time.time()), LATEST - 1)


def new_id() -> str:
    return uuid.uuid4().hex
