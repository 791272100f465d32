"""The MCP servers that the user added, with the rules for their tools.

``mcp.json``, next to the settings, has the shape that other programs use, and the rules: ``{"mcpServers": {NAME:
{"command", "args", "env", "cwd"} or {"url", "headers"}, "timeout", "disabled", "rules"}}``. Only the user can read it.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from engine.base import folders
from engine.base.fetching.lock import lock
from engine.base.files import UnreadableFileError, decode_file
from engine.protocol.mcp import AddServer, McpServer, RemoveServer
from engine.services.keys import write_private
from engine.services.mcp.logins import Logins
from engine.services.operations import Context, Emit, OperationFailed

MOST_SERVERS = 64
CALL_SECONDS = 120.0
"""How long a call may take where the file does not say it."""


class KeptServer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry. ``timeout``: seconds that a call may take. ``rules``: tools that are called without asking, each with
    the digest of what it was when the user said so."""

    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    timeout: float = CALL_SECONDS
    disabled: bool = False
    rules: dict[str, str] = {}

    @property
    def program(self) -> list[str]:
        """The command with its arguments; [] for a server with an address."""
        return [self.command, *self.args] if self.command else []

    @property
    def reached_by(self) -> KeptServer:
        """What a connection is made with: the entry without what is about calls."""
        return msgspec.structs.replace(self, rules={}, timeout=CALL_SECONDS)

    def shown(self, name: str) -> McpServer:
        """The record for others, which has no secrets."""
        return McpServer(
            name=name,
            command=self.program,
            url=self.url,
            env=list(self.env),
            headers=list(self.headers),
            state="off" if self.disabled else "unasked",
        )


class _ServerFile(msgspec.Struct, frozen=True):
    """``mcp.json``."""

    servers: dict[str, KeptServer] = msgspec.field(default_factory=dict, name="mcpServers")


def file() -> Path:
    """Path of ``mcp.json``."""
    return folders.place("config", folders.SYSTEM.user_config_path) / "mcp.json"


def read() -> dict[str, KeptServer]:
    """The servers by name. Raises :class:`OperationFailed`."""
    try:
        return (decode_file(file(), _ServerFile) or _ServerFile()).servers
    except UnreadableFileError as error:
        raise OperationFailed(f"{error.reason} Correct it, or delete it and add the servers again.") from error


def find(name: str) -> KeptServer:
    """Raises :class:`OperationFailed` for one that is not there, or is off."""
    servers = read()
    if name not in servers:
        names = ", ".join(servers) or "none"
        raise OperationFailed(f"There is no MCP server {name!r}, only these: {names}.")
    if servers[name].disabled:
        raise OperationFailed(f"The MCP server {name} is off. Take “disabled” out of {file()}.")
    return servers[name]


def add(context: Context, request: AddServer, emit: Emit) -> list[McpServer]:
    """The servers that were added. Raises :class:`OperationFailed`."""
    new = {safe(name): _checked(name, entry) for name, entry in _wanted(request).items()}

    def with_them(servers: dict[str, KeptServer]) -> dict[str, KeptServer]:
        if twice := next((name for name in new if name in servers), ""):
            text = f"There is an MCP server {twice} already. Choose another name, or remove that one first."
            raise OperationFailed(text)
        if len(servers) + len(new) > MOST_SERVERS:
            raise OperationFailed(f"{MOST_SERVERS} MCP servers are the most. Remove one first.")
        return {**servers, **new}

    _change(with_them)
    return [entry.shown(name) for name, entry in new.items()]


def remove(context: Context, request: RemoveServer, emit: Emit) -> McpServer:
    """Raises :class:`OperationFailed`."""
    gone = read().get(request.name)
    if gone is None:
        raise OperationFailed(f"There is no MCP server {request.name!r}. `kvasir mcp list` shows them.")
    _change(lambda servers: {name: entry for name, entry in servers.items() if name != request.name})
    Logins(request.name, gone.url).forget()
    return gone.shown(request.name)


def set_rule(server: str, tool: str, digest: str) -> McpServer:
    """Allow a tool that has this digest, "" for none. Raises :class:`OperationFailed`."""

    def with_rule(servers: dict[str, KeptServer]) -> dict[str, KeptServer]:
        entry = servers[server]
        others = {name: value for name, value in entry.rules.items() if name != tool}
        return {**servers, server: msgspec.structs.replace(entry, rules=others | ({tool: digest} if digest else {}))}

    find(server)
    _change(with_rule)
    return find(server).shown(server)


def safe(name: str) -> str:
    """The name in letters, digits, ``_`` and ``-``, all that each format of calls can carry."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:48]


def _wanted(request: AddServer) -> dict[str, KeptServer]:
    """The entries that a request describes; rules that a configuration brings are left out, as they are the user's."""
    if request.config:
        return {name: msgspec.structs.replace(entry, rules={}) for name, entry in _pasted(request).items()}
    words = shlex.split(request.command, posix=os.name == "posix")
    program = [word.strip('"') for word in words] if os.name != "posix" else words
    return {request.name: KeptServer(command="".join(program[:1]), args=program[1:], url=request.url)}


def _pasted(request: AddServer) -> dict[str, KeptServer]:
    """The servers in a configuration: all of it, its ``mcpServers`` (``servers`` in VS Code) alone, or one entry."""
    try:
        found = msgspec.json.decode(request.config, type=dict[str, msgspec.Raw])
        inner = found.get("mcpServers", found.get("servers"))
        if inner is not None:
            return msgspec.json.decode(inner, type=dict[str, KeptServer])
        if {"command", "url"} & set(found):
            return {request.name: msgspec.json.decode(request.config, type=KeptServer)}
        return msgspec.json.decode(request.config, type=dict[str, KeptServer])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        text = f"That is no configuration of MCP servers ({error}). Paste JSON with “mcpServers” in it."
        raise OperationFailed(text) from error


def _checked(name: str, entry: KeptServer) -> KeptServer:
    if not safe(name):
        raise OperationFailed(f"{name!r} cannot be a server's name. Use letters, digits and hyphens.")
    if bool(entry.command) == bool(entry.url):
        raise OperationFailed(f"The MCP server {name} needs either a command or a URL. Give one of them.")
    if entry.url and (urlsplit(entry.url).scheme not in ("http", "https") or not urlsplit(entry.url).hostname):
        raise OperationFailed(f"{entry.url} cannot be the address of an MCP server. Write it as http://HOST:PORT/mcp.")
    return entry


def _change(edit: Callable[[dict[str, KeptServer]], dict[str, KeptServer]]) -> None:
    """Replace what is kept, in one step. ``edit`` may raise. Raises :class:`OperationFailed` and OSError."""
    path = file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    busy = OperationFailed("Another Kvasir is changing the MCP servers. Wait a moment and try again.")
    with lock(path.with_name(path.name + ".lock"), busy, 10.0):
        write_private(path, msgspec.json.format(msgspec.json.encode(_ServerFile(edit(read()))), indent=1))
