"""Tools of a request in any dialect, checked, and which of them may or must be called."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Raw, structs

from engine.doors.http.fields import BadField
from engine.doors.http.structured import nothing
from engine.protocol import ChatMessage, MessagePart, Tool, ToolConfig, ToolResult
from engine.services.answers.refused import shortened

MOST_NAME = 256
"""Characters of a tool's name."""

ToolChoice = Literal["auto", "required", "none"]
_NO_NAME = frozenset("<>\"'{}[]()|:;,= \t\r\n")
"""Characters that mean something in the format of some family."""


class FunctionIn(msgspec.Struct):
    """A function as OpenAI's and Ollama's interfaces describe it. Its arguments hold to the schema wherever a call is
    required; ``strict`` asks for what else a model does by itself."""

    name: str = ""
    description: str | None = None
    parameters: Raw = msgspec.field(default_factory=nothing)
    strict: bool | None = None


class ToolIn(msgspec.Struct):
    type: str = "function"
    function: FunctionIn | None = None

    def tool(self, where: str) -> Tool:
        """Raises BadField."""
        if self.type != "function":
            text = f"Tools of the type {shortened(self.type)!r} are not supported. Send functions."
            raise BadField(f"{where}.type", text)
        function = self.function or FunctionIn()
        return checked_tool(function.name, function.description, function.parameters, f"{where}.function")


def checked_tool(name: str, description: str | None, schema: Raw, where: str) -> Tool:
    """Raises BadField for a name that no format can carry, or parameters that are not those of an object."""
    if not name:
        raise BadField(f"{where}.name", "A tool has no name. Give it one.")
    if len(name) > MOST_NAME or _NO_NAME.intersection(name):
        text = f"{shortened(name)!r} cannot name a tool. Use up to {MOST_NAME} letters, digits, dots and dashes."
        raise BadField(f"{where}.name", text)
    if bytes(schema) == b"null":
        return Tool(name=name, description=description or "")
    decoded = msgspec.json.decode(schema)
    if not isinstance(decoded, dict) or decoded.get("type", "object") != "object":
        text = f"The parameters of the tool {name!r} are not a JSON schema of an object. Send one, or leave them out."
        raise BadField(f"{where}.parameters", text)
    return Tool(name=name, description=description or "", parameters=json.dumps({"type": "object", **decoded}))


def tool_config(
    tools: Sequence[Tool], choice: ToolChoice, names: Sequence[str] = (), parallel: bool = True
) -> ToolConfig | None:
    """What may be called; None where nothing may. Raises BadField for a choice of what there is not."""
    twice = [name for name, count in Counter(tool.name for tool in tools).items() if count > 1]
    if twice:
        raise BadField("tools", f"Two tools are called {twice[0]!r}. Give each a name of its own.")
    if unknown := [name for name in names if name not in {tool.name for tool in tools}]:
        raise BadField("tool_choice", f"The tool {shortened(unknown[0])!r} is not among the tools. Send it with them.")
    if choice == "required" and not tools:
        raise BadField("tool_choice", "A tool is to be called, but there are none. Send tools.")
    if choice == "none" or not tools:
        return None
    return ToolConfig(tools=list(tools), choice=choice, names=list(names), parallel=parallel)


def with_names(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages with the names of tools at their results, which some chat templates want."""
    names: dict[str, str] = {}
    found: list[ChatMessage] = []
    for message in messages:
        names |= {call.id: call.name for call in message.calls}
        parts = [_named(part, names) for part in message.parts] if message.results else message.parts
        found.append(structs.replace(message, parts=parts))
    return found


def _named(part: MessagePart, names: dict[str, str]) -> MessagePart:
    if isinstance(part, ToolResult) and not part.name:
        return structs.replace(part, name=names.get(part.id, ""))
    return part


def chosen(choice: str | dict[str, Any] | None) -> tuple[ToolChoice, Sequence[str]]:
    """What ``tool_choice`` says: a word, one function, or several that are allowed. Raises BadField."""
    match choice:
        case None | "auto":
            return "auto", ()
        case "none":
            return "none", ()
        case "required" | "any":
            return "required", ()
        case (
            {"type": "function", "function": {"name": str(name)}}
            | {"type": "function", "name": str(name)}
            | {"type": "custom", "name": str(name)}
        ):
            return "required", (name,)
        case {"type": "allowed_tools"}:
            inner = _object(choice)
            return _allowed(_object(inner.get("allowed_tools", inner)))
    text = f"tool_choice is auto, none, required or names a function: {shortened(str(choice))} does not."
    raise BadField("tool_choice", text)


def _allowed(choice: dict[str, Any]) -> tuple[ToolChoice, Sequence[str]]:
    tools = choice.get("tools")
    names = [name for each in tools if (name := _name_of(each))] if isinstance(tools, list) else []
    if not names:
        raise BadField("tool_choice.tools", "No tool is allowed. Name those that are, or choose none.")
    return "required" if choice.get("mode") == "required" else "auto", names


def _name_of(tool: Any) -> str:
    found = _object(_object(tool).get("function", tool)).get("name")
    return found if isinstance(found, str) else ""


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
