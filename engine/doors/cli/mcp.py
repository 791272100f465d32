"""`kvasir mcp …`: the MCP servers whose tools chats can use."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from engine.base.terminal import say, table
from engine.doors.cli.errors import report_errors
from engine.doors.cli.operations import Json, command, lines, showing
from engine.protocol import operations

if TYPE_CHECKING:
    from engine.protocol.mcp import LogIn, LoginPage, McpServer, McpTool

mcp = typer.Typer(help="MCP servers, whose tools chats can use.", rich_markup_mode=None)

Server = Annotated[str, typer.Argument(help="This one only, with its tools.", show_default=False)]


@mcp.command("list")
def listed(server: Server = "", json: Json = False) -> None:
    """List the MCP servers, and whether they can be used."""
    from engine.protocol.mcp import ListServers

    def show(found: list[McpServer]) -> None:
        named = [each for each in found if each.name == server]
        _show_tools(named) if named else _show_servers(found)

    request = ListServers(servers=[server or "*"])
    with report_errors():
        showing(operations.LIST_SERVERS, show)(request, json)


def _show_servers(found: list[McpServer]) -> None:
    states = {"off": "off", "unasked": "", "ready": "ready", "failed": "failed"}
    rows = [(each.name, each.url or shlex.join(each.command), states[each.state], _tools(each)) for each in found]
    table(("server", "command or address", "state", "tools"), rows)
    for each in found:
        if each.detail:
            say(each.detail)


def _show_tools(found: list[McpServer]) -> None:
    for server in found:
        rows = [(tool.name, _rule(tool), tool.description.split("\n")[0]) for tool in server.tools]
        table(("tool", "rule", "description"), rows)
        if server.detail:
            say(server.detail)


def _rule(tool: McpTool) -> str:
    return "ask: it has changed" if tool.changed else tool.rule


def _tools(server: McpServer) -> str:
    return f"{len(server.tools):,}" if server.state == "ready" else ""


def _show_added(made: list[McpServer]) -> None:
    for each in made:
        say(f"{each.name} is added: {each.url or shlex.join(each.command)}. Switch tools on in a chat to use it.")


def _show_removed(gone: McpServer) -> None:
    say(f"{gone.name} is removed, with the rules for its tools.")


def _log_in(request: LogIn, json: bool) -> None:
    import webbrowser

    from engine.services.operations import perform

    def open_page(page: LoginPage) -> None:
        say(f"Log in on this page, which opens in your browser: {page.url}", error=json)
        webbrowser.open(page.url)

    server = perform(operations.LOG_IN, request, open_page)
    lines([server]) if json else say(f"You are logged in at {server.name}.")


mcp.command("login")(command(operations.LOG_IN, _log_in))


def _show_rule(server: McpServer) -> None:
    say(f"The rule for the tool of {server.name} is set.")


for _name, _row, _show in (
    ("add", operations.ADD_SERVER, _show_added),
    ("remove", operations.REMOVE_SERVER, _show_removed),
    ("allow", operations.ALLOW_TOOL, _show_rule),
):
    mcp.command(_name)(command(_row, showing(_row, _show), arguments=("name", "rule")))
