"""Rounds of an answer that calls tools, as the window and the terminal go through them: what may run, what the model
is told, and how calls and results are named to a person."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from engine.protocol.mcp import AllowTool, CallTool, McpServer, McpTool, ToolOutcome, ToolProgress
from engine.protocol.parts import ChatMessage, MessagePart, Tool, ToolCall, ToolConfig, ToolResult
from engine.protocol.records import ModelCard

MOST_ROUNDS = 25
"""Answers in a row that may call tools before the person says something again."""
ENOUGH = f"Tools were called {MOST_ROUNDS} times in a row. Send a message to go on."
DENIED = "The user denied this call."
STOPPED = "The user stopped this call."
NOT_RUN = "The user did not run this call."
CHANGED = "Its description or arguments have changed since it was always allowed."
Decision = Literal["once", "always", "deny"]


class KnownTool(NamedTuple):
    """A tool with the name of its server."""

    server: str
    tool: McpTool

    @property
    def always(self) -> AllowTool:
        """The rule that allows it as it is now."""
        return AllowTool(server=self.server, tool=self.tool.name, rule="always", digest=self.tool.digest)


def known_tools(servers: Sequence[McpServer]) -> dict[str, KnownTool]:
    """The tools by the names that a model calls them."""
    return {tool.called: KnownTool(server.name, tool) for server in servers for tool in server.tools}


def config_of(servers: Sequence[McpServer], wanted: Sequence[str]) -> tuple[ToolConfig | None, str]:
    """The tools of the servers that a chat has, and sentences on those that cannot be used."""
    chosen = [server for server in servers if server.name in wanted]
    tools = [
        Tool(name=tool.called, description=tool.description, parameters=tool.parameters)
        for server in chosen
        for tool in server.tools
    ]
    gone = [f"There is no MCP server {name} any more." for name in wanted if name not in {each.name for each in chosen}]
    notice = " ".join([*(server.detail for server in chosen if server.detail), *gone])
    return (ToolConfig(tools=tools) if tools else None), notice


def judged(call: ToolCall, known: KnownTool | None, decision: Decision | None) -> CallTool | ToolResult | None:
    """What becomes of a call: it is run, it has a result without that, or (None) the person is asked first.

    ``known`` is None for a tool that no server has, ``decision`` as long as the person has said nothing.
    """
    arguments = _arguments(call)
    if decision == "deny":
        return ToolResult(call.id, DENIED, call.name, failed=True)
    if known is None:
        text = f"There is no tool {call.name}, or its server cannot be reached."
        return ToolResult(call.id, text, call.name, failed=True)
    if arguments is None:
        return ToolResult(call.id, "The arguments of this call are not a JSON object.", call.name, failed=True)
    if decision is None and known.tool.rule != "always":
        return None
    return CallTool(server=known.server, tool=known.tool.name, arguments=arguments, allowed=decision is not None)


def result_of(call: ToolCall, outcome: ToolOutcome) -> ToolResult:
    """What a tool returned, as the result of the call."""
    return ToolResult(call.id, outcome.text, call.name, outcome.pictures, outcome.failed)


def seen_by(card: ModelCard | None, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages as a model can read them: pictures of tools' results are named for one that sees none."""
    if card is None or card.pictures:
        return list(messages)
    return [msgspec.structs.replace(message, parts=list(map(_named, message.parts))) for message in messages]


def pretty(arguments: str) -> str:
    """The arguments as people read them; what is not JSON stays as it was written."""
    try:
        return json.dumps(json.loads(arguments or "{}"), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments


def readable(called: str) -> str:
    """A tool by its server's name and its own, as in "files: read_file"."""
    server, _, tool = called.partition("__")
    return f"{server}: {tool}" if tool else called


def title_of(result: ToolResult) -> str:
    """A result in a line: its size, or how it failed."""
    size = _counted(len(result.content), "character")
    if result.pictures:
        size += f", {_counted(len(result.pictures), 'picture')}"
    return f"Failed: {result.content.strip().partition(chr(10))[0][:80]}" if result.failed else f"Result: {size}"


def told_progress(event: ToolProgress) -> str:
    """Format the progress, such as "3 of 12, reading"."""
    of = f" of {event.total:g}" if event.total else ""
    return ", ".join(part for part in (f"{event.done:g}{of}", event.message) if part)


def _arguments(call: ToolCall) -> dict[str, msgspec.Raw] | None:
    """The arguments by name; None where the model wrote something else."""
    try:
        return msgspec.json.decode(call.arguments or "{}", type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _named(part: MessagePart) -> MessagePart:
    if not isinstance(part, ToolResult) or not part.pictures:
        return part
    note = f"[{_counted(len(part.pictures), 'picture')}, which you cannot see]"
    return msgspec.structs.replace(part, pictures=[], content=f"{part.content}\n{note}".lstrip())


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
