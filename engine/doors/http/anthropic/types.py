"""The part of Anthropic's Messages that is spoken here, as records.

Source: https://docs.claude.com/en/api/messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Raw

from engine.doors.http.fields import BadField
from engine.doors.http.pictures import picture
from engine.doors.http.sampling import SamplingIn
from engine.doors.http.structured import nothing, schema_of
from engine.doors.http.tools import checked_tool, tool_config, with_names
from engine.protocol import (
    ChatMessage,
    MessagePart,
    PicturePart,
    Sampling,
    StructuredOutput,
    TextPart,
    Thinking,
    ThinkingPart,
    Tool,
    ToolCall,
    ToolConfig,
    ToolResult,
)
from engine.services.answers.refused import shortened
from engine.text.prompt import PromptForm

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
    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}
    tool_use_id: str = ""
    content: str | list[Block] | None = None
    is_error: bool | None = None


class Turn(msgspec.Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class ToolIn(msgspec.Struct):
    """A tool of the client's. Those of Anthropic's own server have another type, and are not there for a model here."""

    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: Raw = msgspec.field(default_factory=nothing)


class ToolChoice(msgspec.Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str = ""
    disable_parallel_tool_use: bool | None = None


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
        "mcp_servers": ([],),
        "container": (),
        "inference_geo": (),
        "cache_control": ({"type": "ephemeral"},),
    }

    model: str
    messages: list[Turn]
    system: str | list[Block] = ""
    thinking: ThinkingIn | None = None
    output_config: OutputConfig = OutputConfig()
    output_format: OutputFormat | None = None
    context_management: dict[str, Any] | None = None
    """What Anthropic's server leaves out of a conversation that grows long, which this one does not."""
    tools: list[ToolIn] = []
    tool_choice: ToolChoice | None = None

    def conversation(self) -> list[ChatMessage]:
        """Raises BadField with a sentence about what is not supported."""
        if not self.messages:
            raise BadField("messages", "There is no message to answer. Send one at least.")
        blocks = [Block("text", self.system)] if isinstance(self.system, str) else self.system
        system = "\n\n".join(block.text for block in blocks if not block.text.startswith(BILLING))
        told = [ChatMessage.of("system", system)] if system else []
        said = (each for number, turn in enumerate(self.messages) for each in _messages(turn, f"messages.{number}"))
        return with_names([*told, *said])

    def tool_config(self) -> ToolConfig | None:
        """Tools that the answer may call. Raises BadField."""
        given = self.tool_choice or ToolChoice("auto")
        tools = [tool for number, each in enumerate(self.tools) for tool in _tools(each, f"tools.{number}")]
        choice: Literal["auto", "required", "none"] = "auto"
        if given.type != "auto":
            choice = "none" if given.type == "none" else "required"
        names = [given.name] if given.type == "tool" else []
        return tool_config(tools, choice, names, not given.disable_parallel_tool_use)

    @property
    def form(self) -> PromptForm:
        """Form in which the conversation is written: an answer goes on from a last message of the assistant's. Raises
        BadField."""
        prefills = bool(self.messages) and self.messages[-1].role == "assistant"
        return PromptForm(prefills=prefills, tools=self.tool_config())

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


SERVERS_OWN = ("web_search_", "web_fetch_", "code_execution_", "tool_search_")
"""Begin the types of tools that Anthropic's server runs by itself."""


def _tools(tool: ToolIn, where: str) -> Iterator[Tool]:
    """The tool as a model is told of it, none for one that only Anthropic's server has. Raises BadField."""
    if tool.type in (None, "custom"):
        yield checked_tool(tool.name, tool.description, tool.input_schema, where)
    elif not tool.type.startswith(SERVERS_OWN):
        text = f"Tools of the type {shortened(tool.type)!r} are not supported. Send a name and an input_schema."
        raise BadField(f"{where}.type", text)


def _messages(turn: Turn, where: str) -> Iterator[ChatMessage]:
    """The results of tools as a message of their own, and what else is said. Raises BadField."""
    blocks = [Block("text", turn.content)] if isinstance(turn.content, str) else turn.content
    parts = [each for number, block in enumerate(blocks) for each in _parts(block, f"{where}.content.{number}")]
    results = [part for part in parts if isinstance(part, ToolResult)]
    said = [part for part in parts if not isinstance(part, ToolResult)]
    misplaced = {"pictures": (PicturePart, "user"), "calls of tools": (ToolCall, "assistant")}
    for name, (kind, role) in misplaced.items():
        if turn.role != role and any(isinstance(part, kind) for part in said):
            text = f"A message of the role {turn.role!r} cannot have {name}. Use {role}."
            raise BadField(f"{where}.content", text)
    if results:
        yield ChatMessage(role="tool", parts=[*results])
    if said or not results:
        yield ChatMessage(role=turn.role, parts=[*said])


def _parts(block: Block, where: str) -> Iterator[MessagePart]:
    match block.type:
        case "text":
            yield TextPart(block.text)
        case "thinking":
            yield ThinkingPart(block.thinking)
        case "redacted_thinking":
            pass
        case "image":
            yield PicturePart(_picture(block, where))
        case "tool_use":
            yield ToolCall(block.id, block.name, msgspec.json.encode(block.input).decode())
        case "tool_result":
            yield _result(block, where)
        case _:
            text = (
                f"Content of type {shortened(block.type)!r} is not supported. Send text, image, tool_use or "
                "tool_result."
            )
            raise BadField(f"{where}.type", text)


def _result(block: Block, where: str) -> ToolResult:
    inner = [Block("text", block.content)] if isinstance(block.content, str) else block.content or []
    texts: list[str] = []
    pictures: list[bytes] = []
    for number, each in enumerate(inner):
        if each.type == "image":
            pictures.append(_picture(each, f"{where}.content.{number}"))
        elif each.type == "text":
            texts.append(each.text)
        else:
            text = f"Results of type {shortened(each.type)!r} are not supported. Send text or image."
            raise BadField(f"{where}.content.{number}.type", text)
    return ToolResult(block.tool_use_id, "\n".join(texts), pictures=pictures, failed=bool(block.is_error))


def _picture(block: Block, where: str) -> bytes:
    if block.source is None or block.source.type != "base64":
        raise BadField(f"{where}.source", "Pictures are not fetched from addresses. Send the file itself in base64.")
    return picture(block.source.data, f"{where}.source")
