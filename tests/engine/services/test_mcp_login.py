"""Logins at MCP servers: only when the person asks for one, kept for the server's address, renewed and forgotten."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import msgspec
import pytest
from typer.testing import CliRunner

from engine.doors.cli.main import app
from engine.protocol.mcp import AddServer, CallTool, ListServers, LogIn, LoginPage, McpServer, RemoveServer
from engine.protocol.operations import ADD_SERVER, CALL_TOOL, LIST_SERVERS, LOG_IN, REMOVE_SERVER
from engine.services.mcp import logins
from engine.services.mcp.connections import connections
from engine.services.operations import OperationFailed, perform
from tests.kit.mcp_login import Gate, locked_server


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path))
    with locked_server() as made:
        perform(ADD_SERVER, AddServer(name="web", url=made.url))
        try:
            yield made
        finally:
            connections.close()


def listed() -> McpServer:
    (server,) = perform(LIST_SERVERS, ListServers(servers=["web"], again=True))
    return server


def browse(page: LoginPage) -> str:
    """What the person sees at the end."""
    return httpx.get(page.url, follow_redirects=True).text


def test_a_person_logs_in_once_and_stays_so(gate: Gate) -> None:
    before = listed()
    assert (before.state, before.login) == ("failed", True)
    assert before.detail.endswith("Press Connect in the list of MCP servers, or run `kvasir mcp login web`.")
    assert not gate.clients, "nothing is registered before the person asks for it"
    seen: list[str] = []
    server = perform(LOG_IN, LogIn(name="web"), lambda page: seen.append(browse(page)))
    assert "You are logged in." in seen[0]
    assert (server.state, server.login, [tool.name for tool in server.tools]) == ("ready", False, ["echo"])
    asked = CallTool(server="web", tool="echo", arguments={"text": msgspec.Raw(b'"hi"')}, allowed=True)
    assert perform(CALL_TOOL, asked).text == "hi"
    if os.name == "posix":
        assert stat.S_IMODE(logins.file().stat().st_mode) == 0o600
    connections.close()
    kept = logins._read()["web"]
    assert kept.until > time.time() + 3000
    logins.Logins("web", gate.url)._keep(msgspec.structs.replace(kept, until=time.time() - 1))
    assert listed().state == "ready"
    assert (gate.refreshed, len(gate.clients)) == (1, 1)
    assert logins._read()["web"].until > time.time()
    assert not logins.Logins("web", "http://127.0.0.1:1/other").kept.tokens, "they are for that address alone"
    gate.tokens.clear()
    connections.close()
    assert listed().login, "what was granted counts no more"
    perform(REMOVE_SERVER, RemoveServer(name="web"))
    assert logins._read() == {}


def test_a_login_that_is_refused_is_said_and_strangers_are_not_heard(gate: Gate) -> None:
    def refuse(page: LoginPage) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}
        assert query["code_challenge_method"] == "S256"
        back = query["redirect_uri"]
        assert httpx.get(back, params={"code": "x", "state": "guessed"}).status_code == 404
        assert httpx.get(back.replace("callback", "x"), params={"state": query["state"]}).status_code == 404
        told = httpx.get(back, params={"error": "access_denied", "state": query["state"]})
        assert "You are not logged in." in told.text

    with pytest.raises(OperationFailed, match=r"did not let you in \(access_denied\)"):
        perform(LOG_IN, LogIn(name="web"), refuse)
    assert not logins._read()["web"].tokens


def test_at_the_terminal(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webbrowser.open", lambda url: browse(LoginPage(url=url)))
    said = CliRunner().invoke(app, ["mcp", "login", "web"])
    assert "Log in on this page, which opens in your browser: http://127.0.0.1" in said.stdout
    assert "You are logged in at web." in said.stdout


def test_programs_and_open_addresses_have_no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path))
    perform(ADD_SERVER, AddServer(name="files", command="npx"))
    perform(ADD_SERVER, AddServer(name="open", url="http://example.com/mcp"))
    for name in ("files", "open"):
        with pytest.raises(OperationFailed, match=f"Nobody can log in at the MCP server {name}"):
            perform(LOG_IN, LogIn(name=name))
