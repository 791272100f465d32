"""Items of OpenAI's Responses: a conversation as its clients send and get it, and as a model reads it.

Source: https://platform.openai.com/docs/api-reference/responses and the Open Responses specification of 2026-04-24.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import structs

from engine.doors.http.fields import BadField
from engine.doors.http.pictures import picture_at
from engine.doors.http.tools import with_names
from engine.protocol import ChatMessage, MessagePart, PicturePart, TextPart, ThinkingPart, ToolCall, ToolResult
from engine.protocol.parts import Role
from engine.services.answers.refused import shortened

ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
TEXTS = frozenset({"input_text", "output_text", "text", "refusal"})
"""Types of the parts of a message that are text."""
REFERENCE = "item_reference"
OUR_TEXT = "kvasir-"
"""Begins the ``encrypted_content`` of what comes from here: the thinking or the summary itself, in base64."""
SUMMARISED = "What was said before, as a summary:\n\n{summary}"
"""How a model is told of what :mod:`engine.doors.http.responses.compaction` made."""
INPUT = "input"
"""The one argument of a custom tool."""
_IDS = {
    "message": "msg",
    "reasoning": "rs",
    "compaction": "cmp",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
}
"""What the names of items begin with, by their types."""
CALLS = frozenset({"function_call", "custom_tool_call"})
OUTPUTS = frozenset(f"{kind}_output" for kind in CALLS)


class PartIn(msgspec.Struct, omit_defaults=True):
    """A part of a message, of what a tool returned, or of reasoning."""

    type: str
    text: str = ""
    refusal: str = ""
    image_url: str | None = None

    @property
    def url(self) -> str:
        """The address of its picture, "" without one."""
        return self.image_url or ""


class ItemIn(msgspec.Struct, omit_defaults=True):
    """An item of a conversation; one without a type is a message. What else it has is ignored."""

    type: str = ""
    id: str | None = None
    status: str | None = None
    role: str = ""
    content: str | list[PartIn] | None = None
    summary: list[PartIn] | None = None
    encrypted_content: str | None = None
    call_id: str = ""
    name: str = ""
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None
    output: str | list[PartIn] | None = None

    def __post_init__(self) -> None:
        if not (self.type or self.role):
            raise ValueError("An item has neither a type nor a role")

    @property
    def kind(self) -> str:
        return self.type or "message"

    @property
    def named(self) -> ItemIn:
        """The item as it is told again: with a name, and text as a part."""
        content = self.content
        if self.kind == "message" and isinstance(content, str):
            content = [PartIn("output_text" if self.role == "assistant" else "input_text", content)]
        return structs.replace(self, type=self.kind, id=self.id or new_id(self.kind), content=content)


Placed = tuple[str, ItemIn]
"""An item with the field that it stands in."""


def new_id(kind: str) -> str:
    """A name for an item of this type, or for a response."""
    return f"{_IDS.get(kind, kind)}_{secrets.token_hex(24)}"


def full_name(namespace: str, name: str) -> str:
    """The name that a tool of a namespace has to a model; without one its own."""
    return f"{namespace}__{name}" if namespace else name


def hidden(text: str) -> str:
    """A text in the form in which clients keep what they do not read."""
    return OUR_TEXT + base64.b64encode(text.encode(errors="surrogatepass")).decode()


def check_outputs(before: Sequence[ItemIn], given: Sequence[ItemIn]) -> None:
    """Raises BadField for the output of a call that is neither in the conversation ``before`` nor given with it."""
    calls = {item.call_id for item in (*before, *given) if item.kind in CALLS}
    for number, item in enumerate(given):
        if item.kind in OUTPUTS and item.call_id not in calls:
            text = f"No tool call found for the output of {shortened(item.call_id)!r}. Send the call_id of the call."
            raise BadField(f"input[{number}].call_id", text)


def pictured(items: Iterable[Placed]) -> Iterator[tuple[str, PartIn]]:
    """The parts that are pictures, with the fields of their addresses."""
    for where, item in items:
        for name, parts in (("content", item.content), ("output", item.output)):
            for number, part in enumerate(parts if isinstance(parts, list) else ()):
                if part.url:
                    yield f"{where}.{name}[{number}].image_url", part


def conversation(items: Iterable[Placed]) -> list[ChatMessage]:
    """The items as messages. What the assistant thought, said and called before anybody else spoke is one message, as
    it was one answer; two messages of it in a row stay two. Raises BadField with a sentence about what is not
    supported."""
    messages: list[ChatMessage] = []
    last = ""
    for where, item in items:
        role, parts = _read(item, where)
        if not parts and item.kind == "reasoning":
            continue
        twice = item.kind == last == "message"
        if messages and role == messages[-1].role == "assistant" and not twice:
            messages[-1] = structs.replace(messages[-1], parts=[*messages[-1].parts, *parts])
        else:
            messages.append(ChatMessage(role=role, parts=parts))
        last = item.kind
    return with_names(_with_one_system(messages) or [ChatMessage.of("user", "")])


def _with_one_system(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages with those of the system before all others as one: templates take no second."""
    count = next((number for number, message in enumerate(messages) if message.role != "system"), len(messages))
    if not count:
        return list(messages)
    text = "\n\n".join(message.content for message in messages[:count])
    rest = messages[count:] or [ChatMessage.of("user", "")]
    return [ChatMessage.of("system", text), *rest]


def _read(item: ItemIn, where: str) -> tuple[Role, list[MessagePart]]:
    match item.kind:
        case "message":
            return _message(item, where)
        case "reasoning":
            thinking = _thinking(item)
            return "assistant", [ThinkingPart(thinking)] if thinking else []
        case "function_call":
            return "assistant", [_call(item, item.arguments or "{}", where)]
        case "custom_tool_call":
            return "assistant", [_call(item, json.dumps({INPUT: item.input or ""}, ensure_ascii=False), where)]
        case "function_call_output" | "custom_tool_call_output":
            text, pictures = _content(item.output or "", f"{where}.output")
            return "tool", [ToolResult(item.call_id, text, pictures=pictures)]
        case "compaction":
            if summary := _shown(item):
                return "user", [TextPart(SUMMARISED.format(summary=summary))]
            text = (
                "What another server compacted cannot be read here. Send the conversation itself, or compact it here."
            )
            raise BadField(f"{where}.encrypted_content", text)
    text = (
        f"Items of the type {shortened(item.kind)!r} are not supported. Send messages, reasoning, compactions, and "
        "calls of functions and custom tools with their outputs."
    )
    raise BadField(f"{where}.type", text)


def _message(item: ItemIn, where: str) -> tuple[Role, list[MessagePart]]:
    if item.role not in ROLES:
        text = f"The role {shortened(item.role)!r} is not supported. Use system, developer, user or assistant."
        raise BadField(f"{where}.role", text)
    if item.content is None:
        raise BadField(f"{where}.content", "The message has no content. Send some text.")
    text, pictures = _content(item.content, f"{where}.content")
    if pictures and item.role != "user":
        raise BadField(f"{where}.content", f"A message of the role {item.role!r} cannot have pictures. Use user.")
    return ROLES[item.role], [*map(PicturePart, pictures), *([TextPart(text)] if text else [])]


def _content(content: str | list[PartIn], where: str) -> tuple[str, list[bytes]]:
    """Text and pictures. Raises BadField."""
    texts: list[str] = []
    pictures: list[bytes] = []
    for number, part in enumerate([PartIn("text", content)] if isinstance(content, str) else content):
        field = f"{where}[{number}]"
        if part.type in TEXTS:
            texts.append(part.text or part.refusal)
        elif part.type == "input_image" and part.url:
            pictures.append(picture_at(part.url, f"{field}.image_url"))
        elif part.type == "input_image":
            text = "Files are not kept here. Send the picture itself as image_url, data:image/jpeg;base64,…"
            raise BadField(f"{field}.image_url", text)
        else:
            text = f"Content of type {shortened(part.type)!r} is not supported. Send input_text or input_image."
            raise BadField(f"{field}.type", text)
    return "".join(texts), pictures


def _thinking(item: ItemIn) -> str:
    """What was thought: as it was told, or as it was hidden."""
    return "".join(part.text for part in item.content or () if isinstance(part, PartIn)) or _shown(item)


def _shown(item: ItemIn) -> str:
    """The text that :func:`hidden` hid; "" for what another server encrypted, which nobody can read here."""
    kept = item.encrypted_content or ""
    if not kept.startswith(OUR_TEXT):
        return ""
    try:
        return base64.b64decode(kept.removeprefix(OUR_TEXT), validate=True).decode(errors="replace")
    except ValueError:
        return ""


def _call(item: ItemIn, arguments: str, where: str) -> ToolCall:
    if not item.name:
        raise BadField(f"{where}.name", "A call of a tool has no name of one. Send back what was answered.")
    return ToolCall(item.call_id, full_name(item.namespace or "", item.name), arguments)
