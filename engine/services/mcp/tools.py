"""Tools of the MCP servers: those that there are, and calls of one."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from engine.base import stopping
from engine.base.errors import plain
from engine.base.fetching.client import is_here
from engine.protocol.mcp import (
    AllowTool,
    CallTool,
    ListServers,
    LogIn,
    LoginPage,
    McpServer,
    McpTool,
    ToolOutcome,
    ToolProgress,
)
from engine.protocol.rounds import CHANGED
from engine.services.mcp import results, servers
from engine.services.mcp.connections import MOST_TOOLS, Connection, LoginNeeded, connections
from engine.services.mcp.servers import KeptServer, safe
from engine.services.operations import Context, Emit, OperationFailed

if TYPE_CHECKING:
    import mcp_types

MOST_NAME = 64
"""Characters of a tool's name in a model's call, the most that OpenAI's interface takes."""
MOST_DESCRIPTION = 4096
MOST_SCHEMA = 65_536
"""Characters of the schema of a tool's arguments."""


def listed(context: Context, request: ListServers, emit: Emit) -> list[McpServer]:
    """The servers. Raises :class:`OperationFailed` where their file cannot be read."""
    kept = servers.read()
    wanted = kept if "*" in request.servers else set(request.servers)
    asked = [name for name, entry in kept.items() if name in wanted and not entry.disabled]
    found = connections.run(_all(kept, asked, request.again)) if asked or connections.any() else {}
    shown = [found.get(name) or entry.shown(name) for name, entry in kept.items()]
    return _unique(shown)


def call(context: Context, request: CallTool, emit: Emit) -> ToolOutcome:
    """Raises :class:`OperationFailed` for a call that the user did not allow, or a server that cannot be used."""
    entry = servers.find(request.server)
    if not request.allowed and request.tool not in entry.rules:
        text = f"No rule allows {request.tool} of {request.server}. Allow this call, or always allow the tool."
        raise OperationFailed(text)
    arguments = {name: msgspec.json.decode(value) for name, value in request.arguments.items()}

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told = ToolProgress(done=done, total=total or 0.0, message=plain(message or "", most=200))
        with contextlib.suppress(stopping.Stopped):  # the call itself is stopped
            await asyncio.to_thread(emit, told)  # it waits for a client that reads slowly

    return connections.run(_called(request, entry, arguments, progress))


def allow(context: Context, request: AllowTool, emit: Emit) -> McpServer:
    """Raises :class:`OperationFailed`, for a tool that the server does not have, too."""
    digest = "" if request.rule == "ask" else request.digest or connections.run(_digest_now(request))
    return servers.set_rule(request.server, request.tool, digest)


def login(context: Context, request: LogIn, emit: Emit) -> McpServer:
    """The server, once the person has logged in. Raises :class:`OperationFailed`."""
    entry = servers.find(request.name)
    if not entry.url or (urlsplit(entry.url).scheme == "http" and not is_here(entry.url)):
        text = f"Nobody can log in at the MCP server {request.name}: that goes by an address with https alone."
        raise OperationFailed(text)
    connections.run(connections.login(request.name, entry, lambda url: emit(LoginPage(url=url))))
    return listed(context, ListServers(servers=[request.name], again=True), emit)[
        list(servers.read()).index(request.name)
    ]


async def _digest_now(request: AllowTool) -> str:
    _, found = await connections.tools(request.server, servers.find(request.server))
    tool = _named(found, request.tool)
    if tool is None:
        names = ", ".join(each.name for each in found) or "none"
        raise OperationFailed(f"{request.server} has no tool {request.tool!r}, only these: {names}.")
    return digest_of(tool)


async def _all(kept: dict[str, KeptServer], asked: list[str], again: bool) -> dict[str, McpServer]:
    await connections.keep({name for name, entry in kept.items() if not entry.disabled})
    found = await asyncio.gather(*(_asked(name, kept[name], again) for name in asked))
    return {server.name: server for server in found}


async def _asked(name: str, entry: KeptServer, again: bool) -> McpServer:
    shown = entry.shown(name)
    try:
        _, tools = await connections.tools(name, entry, again)
    except OperationFailed as failed:
        asks = isinstance(failed, LoginNeeded)
        return msgspec.structs.replace(shown, state="failed", detail=str(failed), login=asks)
    fitting = [tool for tool in tools if _fits(tool)][:MOST_TOOLS]
    left = len(tools) - len(fitting)
    return msgspec.structs.replace(
        shown,
        state="ready",
        detail=f"{left:,} of its tools were left out: there are too many, or their schemas are too long."
        if left
        else "",
        tools=[_tool(name, entry, tool) for tool in fitting],
    )


def _fits(tool: mcp_types.Tool) -> bool:
    return bool(safe(tool.name)) and len(_parameters(tool)) <= MOST_SCHEMA


def digest_of(tool: mcp_types.Tool) -> str:
    """SHA-256 of all that tells a model and a person what the tool is, in hexadecimal."""
    told = tool.model_dump(mode="json", include={"name", "title", "description", "input_schema", "annotations"})
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _named(found: Sequence[mcp_types.Tool], name: str) -> mcp_types.Tool | None:
    return next((tool for tool in found if tool.name == name), None)


def _tool(server: str, entry: KeptServer, tool: mcp_types.Tool) -> McpTool:
    digest, ruled = digest_of(tool), entry.rules.get(tool.name)
    return McpTool(
        name=tool.name,
        called=f"{safe(server)}__{safe(tool.name)}"[:MOST_NAME],
        description=plain(tool.description or tool.title or "", keep="\n", most=MOST_DESCRIPTION),
        parameters=_parameters(tool),
        rule="always" if ruled == digest else "ask",
        changed=ruled is not None and ruled != digest,
        digest=digest,
    )


def _parameters(tool: mcp_types.Tool) -> str:
    return json.dumps({**tool.input_schema, "type": "object"})


def _unique(shown: list[McpServer]) -> list[McpServer]:
    """The servers with tools that no two are called alike."""
    taken: set[str] = set()

    def renamed(tool: McpTool) -> McpTool:
        called, number = tool.called, 1
        while called in taken:
            number += 1
            called = f"{tool.called[: MOST_NAME - 4]}_{number}"
        taken.add(called)
        return msgspec.structs.replace(tool, called=called)

    return [msgspec.structs.replace(server, tools=list(map(renamed, server.tools))) for server in shown]


async def _called(request: CallTool, entry: KeptServer, arguments: dict[str, Any], progress: Any) -> ToolOutcome:
    connection, found = await connections.tools(request.server, entry)
    tool = _named(found, request.tool)
    if not request.allowed and tool is not None and digest_of(tool) != entry.rules[request.tool]:
        text = f"No rule allows {request.tool} of {request.server} any more. {CHANGED} Allow it again if you trust it."
        raise OperationFailed(text)
    try:
        return results.outcome(await connection.call(request.tool, arguments, progress, entry.timeout))
    except TimeoutError:
        text = f"{request.tool} did not end within {entry.timeout:g} seconds and was stopped."
        return ToolOutcome(text=text, failed=True)
    except Exception as error:
        return await _failed(request, connection, error)


async def _failed(request: CallTool, connection: Connection, error: Exception) -> ToolOutcome:
    """What the model is told of a call that the server did not answer. Raises :class:`OperationFailed` where the
    server is gone, which is started again by the next call."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    if isinstance(error, MCPError) and error.code != CONNECTION_CLOSED:
        return ToolOutcome(text=results.cut(error.message), failed=True)
    await connections.drop(request.server)
    raise OperationFailed(connection.sentence(error)) from error
