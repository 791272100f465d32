"""The user's own MCP servers, whose tools a chat can use (https://modelcontextprotocol.io)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Raw

from engine.protocol.base import Part

ServerState = Literal["off", "unasked", "ready", "failed"]
ServerName = Annotated[str, Meta(description="The server's name, as `kvasir mcp list` shows it.")]
Rule = Literal["ask", "always"]


class McpTool(Part, frozen=True):
    """A tool of a server. ``called``: its name for a model, which is unique among all servers.

    ``parameters``: JSON Schema of its arguments, as JSON. ``rule``: whether the user is asked before each call;
    ``changed``: that is so because it is another than the one that was always allowed. ``digest`` is of its description
    and schema as the server has them.
    """

    name: str
    called: str
    description: str = ""
    parameters: str = '{"type":"object","properties":{}}'
    rule: Rule = "ask"
    changed: bool = False
    digest: str = ""


class McpServer(Part, frozen=True):
    """A server, without the values of its environment and headers. ``command`` is empty for one that has a ``url``.

    ``state`` "off": the file says that it is not used; "unasked": not connected to. ``detail``: the reason why it
    cannot be used, or what was left out of its ``tools``. ``login``: it asks the user to log in.
    """

    name: str
    command: list[str] = []
    url: str = ""
    env: list[str] = []
    headers: list[str] = []
    state: ServerState = "unasked"
    detail: str = ""
    tools: list[McpTool] = []
    login: bool = False


class ListServers(Part, frozen=True):
    """List the MCP servers. ``servers`` are asked for their tools, or all for "*"; those that run go on running.

    A server that failed is not tried again for a minute, unless this is asked ``again``.
    """

    servers: list[str] = []
    again: bool = False


class AddServer(Part, frozen=True):
    """Add an MCP server, by its command, its URL, or a configuration that other programs use."""

    name: Annotated[str, Meta(description="A name for it; not needed with --config.")] = ""
    command: Annotated[str, Meta(description="The program that is started, with its arguments in one text.")] = ""
    url: Annotated[str, Meta(description="The address of a server that runs, for streamable HTTP.")] = ""
    config: Annotated[str, Meta(description='JSON such as {"mcpServers": {NAME: {"command": …, "args": […]}}}.')] = ""


class RemoveServer(Part, frozen=True):
    """Remove an MCP server, with the rules for its tools."""

    name: ServerName


class LogIn(Part, frozen=True):
    """Log in at an MCP server that asks for it, on a page that opens in your browser."""

    name: ServerName


class LoginPage(Part, frozen=True):
    """The page on which the user logs in, to be opened in a browser on the engine's computer."""

    url: str


class AllowTool(Part, frozen=True):
    """Set the rule for a tool: ask before each call, or always allow it, until the server changes what it is."""

    server: ServerName
    tool: Annotated[str, Meta(description="The tool's name, as the server has it.")]
    rule: Annotated[Rule, Meta(description="ask or always.")] = "ask"
    digest: Annotated[str, Meta(description="The tool that is allowed, by its digest; as it is now if left out.")] = ""


class CallTool(Part, frozen=True):
    """Call a tool. ``allowed``: the user allowed this one call; else a rule has to."""

    server: str
    tool: str
    arguments: dict[str, Raw] = {}
    allowed: bool = False


class ToolProgress(Part, frozen=True):
    """What a tool tells of its progress. ``total`` is 0 where it is not known."""

    done: float
    total: float = 0.0
    message: str = ""


class ToolOutcome(Part, frozen=True):
    """What a tool returned. ``failed``: it said that it could not do it, which a model is to know.

    ``pictures``: files that a message can have.
    """

    text: str = ""
    pictures: list[bytes] = []
    failed: bool = False
