"""Tools of OpenAI's Responses. A custom tool takes text instead of arguments: to a model it is a function with one
argument, ``input``, and its calls are told as that text. The tools of a namespace have its name before their own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw, structs

from engine.doors.http.fields import BadField
from engine.doors.http.responses.items import INPUT, full_name
from engine.doors.http.structured import nothing
from engine.doors.http.tools import checked_tool
from engine.protocol import Tool
from engine.services.answers.refused import shortened
from engine.text.grammar import lark_of, lark_problem

OURS = ("function", "custom")
"""Types of the tools that a client runs."""
LEFT_OUT = "Tools of these types are not served here, and were left out: {kinds}."
MOST_KINDS = 8
"""Types of tools that a notice names."""
_CUSTOM = f"It is called with one argument, `{INPUT}`, which is its whole text."
_SYNTAXES = {"lark": "Lark grammar", "regex": "regular expression"}


class CustomFormat(msgspec.Struct, frozen=True):
    """What the text of a custom tool is: any, or what a grammar describes."""

    type: Literal["text", "grammar"] = "text"
    syntax: Literal["lark", "regex"] | None = None
    definition: str = ""


class ResponsesTool(msgspec.Struct):
    """A tool of any type; those that the client runs are functions and custom tools, alone or in a namespace."""

    type: str
    name: str = ""
    description: str | None = None
    parameters: Raw = msgspec.field(default_factory=nothing)
    strict: bool | None = None
    format: CustomFormat = CustomFormat()
    tools: list[ResponsesTool] = []

    @property
    def pattern(self) -> str | None:
        """The regular expression that its text holds to, if there is one."""
        return self.format.definition if self.format.syntax == "regex" else None

    @property
    def grammar(self) -> str:
        """The Lark grammar that its text holds to; "" for any text."""
        if self.type != "custom" or self.format.syntax is None:
            return ""
        return self.format.definition if self.pattern is None else lark_of(self.pattern)

    @property
    def schema(self) -> Raw:
        """The schema of its arguments."""
        if self.type == "function":
            return self.parameters
        text: dict[str, Any] = {"type": "string"}
        if self.pattern is not None:
            text["pattern"] = f"^(?:{self.pattern})$"
        return Raw(json.dumps({"type": "object", "properties": {INPUT: text}, "required": [INPUT]}).encode())

    @property
    def described(self) -> str:
        """What a model is told of it."""
        if self.type == "function":
            return self.description or ""
        lines = [self.description or "", _CUSTOM]
        if self.format.syntax is not None:
            lines.append(f"The text holds to this {_SYNTAXES[self.format.syntax]}:\n{self.format.definition}")
        return "\n\n".join(line for line in lines if line)

    @property
    def told(self) -> dict[str, Any]:
        """The tool as a response tells it."""
        told: dict[str, Any] = {"type": self.type, "name": self.name, "description": self.description}
        if self.type == "namespace":
            return told | {"tools": [tool.told for tool in self.tools if tool.type in OURS]}
        if self.type == "function":
            return told | {"parameters": self.parameters, "strict": bool(self.strict)}
        if self.format.syntax is None:
            return told | {"format": {"type": "text"}}
        return told | {"format": self.format}


class ClientTool(NamedTuple):
    """A tool that a client runs, with the field that it stands in, and the namespace that it is in, if it is in one."""

    where: str
    tool: ResponsesTool
    namespace: str = ""

    @property
    def name(self) -> str:
        """Its name to a model."""
        return full_name(self.namespace, self.tool.name)

    @property
    def custom(self) -> bool:
        return self.tool.type == "custom"

    def checked(self) -> Tool:
        """The tool as a model is told of it. Raises BadField."""
        found = checked_tool(self.tool.name and self.name, self.tool.described, self.tool.schema, self.where)
        if problem := lark_problem(self.tool.grammar) if self.tool.grammar else "":
            text = f"The grammar of the tool {self.name!r} cannot be read: {problem}"
            raise BadField(f"{self.where}.format.definition", text)
        return structs.replace(found, grammar=self.tool.grammar)


def client_tools(tools: Sequence[ResponsesTool]) -> list[ClientTool]:
    """The tools that the client runs, in their order."""
    found: list[ClientTool] = []
    for number, tool in enumerate(tools):
        where = f"tools[{number}]"
        if tool.type == "namespace":
            inner = enumerate(tool.tools)
            found += [ClientTool(f"{where}.tools[{place}]", each, tool.name) for place, each in inner]
        else:
            found.append(ClientTool(where, tool))
    return [each for each in found if each.tool.type in OURS]


class InputText:
    """The text of a custom tool's call, while its arguments are written."""

    _OPENS = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
    _PIECES = re.compile(
        r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}'
        r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
    )

    def __init__(self) -> None:
        self._unread, self._opened = "", False
        self._arguments: list[str] = []
        self.told = ""

    def push(self, arguments: str) -> str:
        """Take a part of the arguments; returns what is certain of the text by it."""
        self._arguments.append(arguments)
        self._unread += arguments
        if not self._opened:
            if (opens := self._OPENS.match(self._unread)) is None:
                return ""
            self._opened, self._unread = True, self._unread[opens.end() :]
        found = self._PIECES.match(self._unread)
        assert found is not None
        self._unread = self._unread[found.end() :]
        text: str = json.loads(f'"{found[0]}"', strict=False)
        self.told += text
        return text

    def whole(self) -> tuple[str, bool]:
        """The whole text; the arguments as they stand, and False, where they have none."""
        arguments = "".join(self._arguments)
        try:
            given = json.loads(arguments, strict=False)
        except ValueError:
            return (self.told, True) if self._opened else (arguments, False)
        text = given.get(INPUT) if isinstance(given, dict) else given
        return (text, True) if isinstance(text, str) else (arguments, False)


def notices_of(tools: Sequence[ResponsesTool], required: bool, holds: Callable[[Tool], bool]) -> list[str]:
    """Sentences about tools that are left out, and about texts that are not held to their grammars, as ``holds`` says
    of the model."""
    notices: list[str] = []
    every = [*tools, *(inner for tool in tools if tool.type == "namespace" for inner in tool.tools)]
    known = (*OURS, "namespace")
    if kinds := list(dict.fromkeys(shortened(tool.type) for tool in every if tool.type not in known)):
        shown = ", ".join(kinds[:MOST_KINDS]) + (", …" if len(kinds) > MOST_KINDS else "")
        notices.append(LEFT_OUT.format(kinds=shown))
    free = [
        each.name
        for each in client_tools(tools)
        if each.tool.grammar and not (required and each.tool.pattern is not None) and not holds(each.checked())
    ]
    if free:
        shown = ", ".join(map(shortened, free[:MOST_KINDS]))
        notices.append(f"The model is told of the grammar of {shown}, but what it writes is not held to it.")
    return notices
