"""Messages of a conversation as lists of parts, and the tools that an answer may call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol, TypeVar

import msgspec

from engine.protocol.base import Part

Role = Literal["system", "user", "assistant", "tool"]


class _MessagePart(msgspec.Struct, tag_field="type", omit_defaults=True, frozen=True):
    """Base of the parts of a message."""


class TextPart(_MessagePart, tag="text", frozen=True):
    text: str


class ThinkingPart(_MessagePart, tag="thinking", frozen=True):
    """An assistant's thinking, for chat templates that show a model its earlier thinking; most leave it out."""

    text: str


class PicturePart(_MessagePart, tag="picture", frozen=True):
    """A file of a picture (JPEG, PNG, WebP, GIF or BMP), which comes before its message's text. In a frame, of
    :data:`engine.protocol.MAX_FRAME` bytes at most, three bytes of a file take four."""

    file: bytes


class ToolCall(_MessagePart, tag="tool_call", frozen=True):
    """A call of a tool by the assistant. ``arguments`` is what the model wrote, a JSON object if it wrote well."""

    id: str
    name: str
    arguments: str


class ToolResult(_MessagePart, tag="tool_result", frozen=True):
    """What a tool returned, in a message of the role "tool". ``id`` is that of its call, ``name`` that of its tool
    where it is known."""

    id: str
    content: str
    name: str = ""
    pictures: list[bytes] = []
    failed: bool = False


MessagePart = TextPart | ThinkingPart | PicturePart | ToolCall | ToolResult
_Kind = TypeVar("_Kind", TextPart, ThinkingPart, PicturePart, ToolCall, ToolResult)


class ChatMessage(Part, frozen=True):
    role: Role
    parts: list[MessagePart]

    @classmethod
    def of(
        cls,
        role: Role,
        content: str,
        thinking: str = "",
        pictures: Sequence[bytes] = (),
        calls: Sequence[ToolCall] = (),
    ) -> ChatMessage:
        """A message with these parts in the order in which they are written, without those that are empty."""
        parts: list[MessagePart] = [ThinkingPart(thinking)] if thinking else []
        parts += map(PicturePart, pictures)
        parts += [TextPart(content)] if content else []
        return cls(role=role, parts=[*parts, *calls])

    def each(self, kind: type[_Kind]) -> Iterator[_Kind]:
        """The parts of one kind."""
        return (part for part in self.parts if isinstance(part, kind))

    @property
    def content(self) -> str:
        """The text, in one piece."""
        return "".join(part.text for part in self.each(TextPart))

    @property
    def thinking(self) -> str:
        return "".join(part.text for part in self.each(ThinkingPart))

    @property
    def pictures(self) -> list[bytes]:
        """Files of pictures, those of tools' results among them."""
        results = [file for result in self.each(ToolResult) for file in result.pictures]
        return [part.file for part in self.each(PicturePart)] + results

    @property
    def calls(self) -> list[ToolCall]:
        return list(self.each(ToolCall))

    @property
    def results(self) -> list[ToolResult]:
        return list(self.each(ToolResult))

    def with_text(self, text: str) -> ChatMessage:
        """The message with this text after its own."""
        return msgspec.structs.replace(self, parts=[*self.parts, TextPart(text)])


class Tool(Part, frozen=True):
    """A function that a model may call. ``parameters`` is a JSON Schema, as JSON.

    ``grammar``: Lark, which the texts of its arguments hold to where a model's format writes them as they stand.
    """

    name: str
    description: str = ""
    parameters: str = '{"type":"object","properties":{}}'
    grammar: str = ""


class ToolConfig(Part, frozen=True):
    """Tools of a request, and which of them the answer may or must call.

    ``choice`` "required": it calls one at least, and says nothing else. ``names`` leaves a choice of these alone;
    empty: of all. Without ``parallel`` it calls one at most, which is certain only where a call is required.
    """

    tools: list[Tool]
    choice: Literal["auto", "required"] = "auto"
    names: list[str] = []
    parallel: bool = True

    @property
    def allowed(self) -> list[Tool]:
        """The tools that may be called."""
        return [tool for tool in self.tools if not self.names or tool.name in self.names]


class ToolCallDelta(Part, frozen=True):
    """A part of a call while it is written: the first one of a call has its ``id`` and ``name``, and all together its
    ``arguments``. ``index`` counts the calls of an answer."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class _WithCalls(Protocol):
    @property
    def calls(self) -> list[ToolCallDelta]: ...


class CallCollector:
    """The calls of one answer, as far as they are written."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []

    def take(self, event: _WithCalls) -> None:
        """Take the parts that a Delta has."""
        for part in event.calls:
            if part.index == len(self.calls):
                self.calls.append(ToolCall(part.id, part.name, ""))
            call = self.calls[part.index]
            self.calls[part.index] = ToolCall(call.id, call.name, call.arguments + part.arguments)
