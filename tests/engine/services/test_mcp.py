"""MCP servers: kept, connected to, and their tools called."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from engine.base.stopping import Stop, Stopped, stoppable
from engine.protocol.mcp import (
    AddServer,
    AllowTool,
    CallTool,
    ListServers,
    McpServer,
    McpTool,
    RemoveServer,
    ToolOutcome,
    ToolProgress,
)
from engine.protocol.operations import ADD_SERVER, ALLOW_TOOL, CALL_TOOL, LIST_SERVERS, REMOVE_SERVER
from engine.services.mcp import results, servers, tools
from engine.services.mcp.connections import connections
from engine.services.operations import OperationFailed, perform
from tests.kit import mcp_server

SCRIPT = Path(mcp_server.__file__)
KIT = {"command": sys.executable, "args": [str(SCRIPT)], "env": {"GREETING": "hello"}, "timeout": 20.0}


def add(name: str = "", command: str = "", url: str = "", config: str = "") -> list[McpServer]:
    return perform(ADD_SERVER, AddServer(name=name, command=command, url=url, config=config))


def pasted(**entries: object) -> list[McpServer]:
    return add(config=json.dumps({"mcpServers": entries}))


def listed(*names: str, again: bool = False) -> dict[str, McpServer]:
    return {each.name: each for each in perform(LIST_SERVERS, ListServers(servers=list(names), again=again))}


def call(tool: str, allowed: bool = True, server: str = "kit", **arguments: object) -> ToolOutcome:
    encoded = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in arguments.items()}
    return perform(CALL_TOOL, CallTool(server=server, tool=tool, arguments=encoded, allowed=allowed))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path))
    return servers.file()


@pytest.fixture(scope="module")
def _kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the kit's server, which is started by the first test that needs it and runs to the last one."""
    folder = tmp_path_factory.mktemp("kit")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVASIR_HOME", str(folder))
        pasted(kit=KIT)
        listed("kit")
    yield folder
    connections.close()


@pytest.fixture
def kit(_kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVASIR_HOME", str(_kit))


# --- the file ------------------------------------------------------------------------------------------------------


def test_a_server_is_added_shown_without_secrets_and_removed(home: Path) -> None:
    (made,) = add("files", "npx -y 'a server' /home")
    assert (made.command, made.state) == (["npx", "-y", "a server", "/home"], "unasked")
    pasted(web={"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer abc"}})
    shown = listed()
    assert shown["web"].headers == ["Authorization"]
    assert "abc" in home.read_text()
    assert "abc" not in str(shown)
    assert perform(REMOVE_SERVER, RemoveServer(name="files")) == made
    assert list(listed()) == ["web"]
    with pytest.raises(OperationFailed, match="no MCP server 'files'"):
        perform(REMOVE_SERVER, RemoveServer(name="files"))


@pytest.mark.skipif(os.name != "posix", reason="files have no modes there")
def test_only_the_user_can_read_it(home: Path) -> None:
    add("files", "npx")
    assert stat.S_IMODE(home.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "config",
    [
        {"mcpServers": {"Big Files": {"command": "npx", "args": ["x"], "autoApprove": ["read"]}}},
        {"servers": {"Big Files": {"command": "npx", "args": ["x"]}}, "inputs": []},
        {"Big Files": {"command": "npx", "args": ["x"]}},
    ],
)
def test_configurations_of_other_programs_are_understood(home: Path, config: object) -> None:
    (made,) = add(config=json.dumps(config))
    assert (made.name, made.command) == ("Big-Files", ["npx", "x"])
    assert [each.name for each in add("one", config='{"command": "uvx"}')] == ["one"]


def test_rules_that_a_configuration_brings_are_not_taken_over(home: Path) -> None:
    pasted(kit={**KIT, "rules": {"echo": "0"}})
    assert servers.read()["kit"].rules == {}


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (AddServer(name="files", command="npx"), "a MCP server files already|an MCP server files already"),
        (AddServer(name="..", command="npx"), "cannot be a server's name"),
        (AddServer(name="x"), "either a command or a URL"),
        (AddServer(name="x", command="npx", url="http://x"), "either a command or a URL"),
        (AddServer(name="x", url="ftp://x"), "cannot be the address of an MCP server"),
        (AddServer(config="{"), "no configuration of MCP servers"),
        (AddServer(config='{"mcpServers": {"x": {"command": 3}}}'), r"Expected `str`, got `int` - at `\$"),
        (AddServer(config="[" * 100_000), "no configuration of MCP servers"),
    ],
)
def test_what_cannot_be_added_is_said(home: Path, request_: AddServer, says: str) -> None:
    add("files", "npx")
    with pytest.raises(OperationFailed, match=says):
        perform(ADD_SERVER, request_)
    assert list(listed()) == ["files"]


def test_a_file_that_makes_no_sense_is_told(home: Path) -> None:
    home.parent.mkdir(parents=True)
    home.write_text("{")
    with pytest.raises(OperationFailed, match=r"mcp\.json does not hold"):
        listed()


def test_a_server_that_is_off_is_not_started(home: Path) -> None:
    pasted(kit={**KIT, "disabled": True})
    assert listed("*")["kit"].state == "off"
    with pytest.raises(OperationFailed, match="is off"):
        call("echo", text="hi")


# --- tools ---------------------------------------------------------------------------------------------------------


def test_tools_are_listed_with_their_rules(kit: None) -> None:
    (tool,) = (each for each in listed("kit")["kit"].tools if each.name == "echo")
    assert (tool.called, tool.description, tool.rule) == ("kit__echo", "Say the text again.", "ask")
    assert json.loads(tool.parameters)["required"] == ["text"]


def test_nothing_runs_without_a_rule_or_the_users_word(kit: None) -> None:
    before = connections._open["kit"]
    with pytest.raises(OperationFailed, match="No rule allows echo of kit"):
        call("echo", allowed=False, text="hi")
    perform(ALLOW_TOOL, AllowTool(server="kit", tool="echo", rule="always"))
    assert call("echo", allowed=False, text="hi") == ToolOutcome(text="hi")
    assert {each.name: each.rule for each in listed("kit")["kit"].tools}["echo"] == "always"
    with pytest.raises(OperationFailed, match="No rule allows fail"):
        call("fail", allowed=False)
    assert connections._open["kit"] is before, "a rule starts no server again"
    perform(ALLOW_TOOL, AllowTool(server="kit", tool="echo", rule="ask"))
    with pytest.raises(OperationFailed, match="No rule"):
        call("echo", allowed=False, text="hi")


def test_a_rule_ends_when_the_server_changes_the_tool(kit: None) -> None:
    def keep() -> McpTool:
        return next(tool for tool in listed("kit")["kit"].tools if tool.name == "keep")

    before = keep()
    perform(ALLOW_TOOL, AllowTool(server="kit", tool="keep", rule="always", digest=before.digest))
    assert keep() == msgspec.structs.replace(before, rule="always")
    assert call("keep", allowed=False, text="it").text == "kept it"
    call("change")
    after = keep()
    assert (after.rule, after.changed) == ("ask", True)
    assert after.digest != before.digest
    with pytest.raises(OperationFailed, match=r"No rule allows keep of kit any more\. .* have changed since"):
        call("keep", allowed=False, text="it")
    assert call("keep", text="it").text == "kept it", "the user's word for this one call"
    perform(ALLOW_TOOL, AllowTool(server="kit", tool="keep", rule="always"))
    assert (keep().rule, keep().changed) == ("always", False)
    with pytest.raises(OperationFailed, match="kit has no tool 'dance', only these: echo, fail"):
        perform(ALLOW_TOOL, AllowTool(server="kit", tool="dance", rule="always"))


def test_a_tool_that_fails_tells_the_model(kit: None) -> None:
    failed = call("fail")
    assert failed.failed
    assert "it went wrong" in failed.text
    assert call("no_such_tool").failed
    assert call("echo", wrong=3).failed


def test_pictures_are_kept_and_the_rest_is_named(kit: None) -> None:
    shown = call("show")
    assert shown.pictures == [mcp_server.PIXEL]
    assert shown.text == "here\n[image/svg+xml, which cannot be shown]\n[notes: file:///notes.txt]"


def test_a_long_result_is_cut_with_a_notice(kit: None) -> None:
    text = call("long", chars=1_000_000).text
    assert len(text) < results.MOST_CHARS + 100
    assert text.endswith("[900,000 more characters were left out: the result was too long.]")


def test_the_environment_is_the_one_that_was_given(kit: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("environment", name="GREETING").text == "hello"
    assert call("environment", name="KVASIR_HOME").text == "unset"


def test_a_call_tells_its_progress_and_can_be_stopped(kit: None) -> None:
    stop, told = Stop(), []

    def take(event: ToolProgress) -> None:
        told.append(event)
        stop.set()

    with stoppable(stop), pytest.raises(Stopped):
        perform(CALL_TOOL, CallTool(server="kit", tool="slow", allowed=True), take)
    assert told == [ToolProgress(done=1, total=4, message="begun")]
    assert call("echo", text="still there").text == "still there"


def test_a_call_that_takes_too_long_ends(kit: None) -> None:
    def change(seconds: float) -> None:
        entry = msgspec.structs.replace(servers.read()["kit"], timeout=seconds)
        servers._change(lambda kept: {**kept, "kit": entry})

    change(0.05)
    late = call("slow")
    change(20.0)
    assert (late.failed, late.text) == (True, "slow did not end within 0.05 seconds and was stopped.")


def test_tools_that_are_called_alike_get_numbers() -> None:
    tool = tools.McpTool(name="x", called="a__b")
    shown = tools._unique([McpServer(name="a", tools=[tool]), McpServer(name="b", tools=[tool, tool])])
    assert [each.called for server in shown for each in server.tools] == ["a__b", "a__b_2", "a__b_3"]


# --- servers that do not work --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.slow
def test_a_server_that_crashes_is_told_and_started_again(home: Path) -> None:
    pasted(kit=KIT)
    with pytest.raises(OperationFailed, match=r"kit ended before it answered.*the disk is on fire"):
        call("crash")
    assert call("echo", text="back").text == "back"
    connections.close()


def test_a_program_that_is_not_there_is_said_and_not_tried_again_at_once(home: Path) -> None:
    add("none", "no-such-program x")
    failed = listed("none")["none"]
    assert (failed.state, failed.detail[:35]) == ("failed", "The program no-such-program of the ")
    began = time.monotonic()
    assert listed("none")["none"].detail == failed.detail
    assert time.monotonic() - began < 5
    with pytest.raises(OperationFailed, match="no-such-program"):
        call("x", server="none")


def test_a_program_that_ends_is_quoted(home: Path) -> None:
    script = "import sys; sys.exit('no key was given')"
    pasted(ends={"command": sys.executable, "args": ["-c", script]})
    assert "no key was given" in listed("ends")["ends"].detail


@pytest.mark.slow
def test_over_http_with_its_headers(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, str(SCRIPT), str(port)]) as process:
        try:
            url = f"http://127.0.0.1:{port}/mcp"
            pasted(web={"url": url, "headers": {"x-key": "sesame"}}, stranger={"url": url})
            deadline = time.monotonic() + 60
            while (found := listed("*", again=True))["web"].state != "ready" and time.monotonic() < deadline:
                threading.Event().wait(0.2)
            assert call("echo", server="web", text="hi").text == "hi"
            assert "It said: 401 Unauthorized." in found["stranger"].detail
            perform(REMOVE_SERVER, RemoveServer(name="web"))
            listed()
            assert "web" not in connections._open
        finally:
            connections.close()
            process.terminate()
