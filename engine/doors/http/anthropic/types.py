"""The part of Anthropic's Messages that is spoken here, as records.

Source: https://docs.claude.com/en/api/messages.
"""

from __future__ import annotations

import base64
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Raw

from engine.doors.http.fields import BadField
from engine.doors.http.sampling import SamplingIn
from engine.doors.http.structured import schema_of
from engine.protocol import ChatMessage, Sampling, StructuredOutput, Thinking
from engine.services.answers.refused import shortened

BILLING = "x-anthropic-billing-header"
"""Begins a line of the system prompt of older Claude Code that differs from request to request: read as it stands, no
prompt would begin like the one before it."""


class ImageSource(msgspec.Struct):
    type: str
    data: str = ""
    url: str = ""


class Block(msgspec.Struct):
    """A part of a message. Signatures are given back as they were sent, and say nothing here."""

    type: str
    text: str = ""
    thinking: str = ""
    source: ImageSource | None = None


class Turn(msgspec.Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class ThinkingIn(msgspec.Struct):
    """``budget_tokens`` is not held to: a model thinks as long as it does."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None


class OutputFormat(msgspec.Struct, frozen=True):
    type: Literal["json_schema"]
    schema: Raw


class OutputConfig(msgspec.Struct, frozen=True):
    format: OutputFormat | None = None
    effort: str = ""


class CountIn(SamplingIn, kw_only=True):
    """A conversation whose tokens are counted."""

    neutral: ClassVar[dict[str, tuple[object, ...]]] = {
        "tool_choice": ({"type": "none"}, {"type": "auto"}),
        "mcp_servers": ([],),
        "container": (),
        "context_management": ({},),
        "inference_geo": (),
        "cache_control": ({"type": "ephemeral"},),
    }

    model: str
    messages: list[Turn]
    system: str | list[Block] = ""
    thinking: ThinkingIn | None = None
    output_config: OutputConfig = OutputConfig()
    output_format: OutputFormat | None = None

    def conversation(self) -> list[ChatMessage]:
        """Raises BadField with a sentence about what is not supported."""
        if not self.messages:
            raise BadField("messages", "There is no message to answer. Send one at least.")
        blocks = [Block("text", self.system)] if isinstance(self.system, str) else self.system
        system = "\n\n".join(block.text for block in blocks if not block.text.startswith(BILLING))
        told = [ChatMessage(role="system", content=system)] if system else []
        return told + [_message(turn, f"messages.{number}") for number, turn in enumerate(self.messages)]

    @property
    def prefills(self) -> bool:
        """True if the answer goes on from the last message."""
        return bool(self.messages) and self.messages[-1].role == "assistant"

    @property
    def wanted_thinking(self) -> Thinking:
        """Whoever does not ask for thinking gets none."""
        on = self.thinking is not None and self.thinking.type != "disabled"
        return Thinking(on=on, effort=self.output_config.effort if on else "")

    @property
    def structured(self) -> StructuredOutput | None:
        form = self.output_config.format or self.output_format
        return None if form is None else schema_of(form.schema)


class MessagesIn(CountIn, kw_only=True):
    max_tokens: int
    stop_sequences: list[str] = []
    stream: bool = False
    ttl: int | None = None

    def check(self, vocabulary: int) -> None:
        if self.max_tokens < 1:
            raise BadField("max_tokens", f"max_tokens is at least 1: {self.max_tokens} is not.")
        super().check(vocabulary)

    def sampling(self) -> Sampling:
        given = self.base_sampling(self.max_tokens, None)
        return msgspec.structs.replace(given, stop=self.stop_sequences)


class UsageOut(msgspec.Struct):
    """Tokens of the prompt that were found in the cache are not among the input."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


class MessageOut(msgspec.Struct):
    id: str
    model: str
    content: list[dict[str, Any]]
    usage: UsageOut
    stop_reason: str | None = None
    stop_sequence: str | None = None
    type: str = "message"
    role: str = "assistant"


def _message(turn: Turn, where: str) -> ChatMessage:
    blocks = [Block("text", turn.content)] if isinstance(turn.content, str) else turn.content
    pictures: list[bytes] = []
    for number, block in enumerate(blocks):
        field = f"{where}.content.{number}"
        if block.type == "image":
            pictures.append(_picture(block, field))
        elif block.type not in ("text", "thinking", "redacted_thinking"):
            text = f"Content of type {shortened(block.type)!r} is not supported. Send text or image."
            raise BadField(f"{field}.type", text)
    if pictures and turn.role != "user":
        raise BadField(f"{where}.content", f"A message of the role {turn.role!r} cannot have pictures. Use user.")
    text = "".join(block.text for block in blocks if block.type == "text")
    thinking = "".join(block.thinking for block in blocks if block.type == "thinking")
    return ChatMessage(role=turn.role, content=text, thinking=thinking, pictures=pictures)


def _picture(block: Block, where: str) -> bytes:
    if block.source is None or block.source.type != "base64":
        raise BadField(f"{where}.source", "Pictures are not fetched from addresses. Send the file itself in base64.")
    try:
        return base64.b64decode(block.source.data, validate=True)
    except ValueError as error:
        raise BadField(f"{where}.source", "The base64 of the picture is damaged. Send the whole file again.") from error
