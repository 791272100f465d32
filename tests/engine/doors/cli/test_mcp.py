"""`kvasir mcp …` on a terminal and for other programs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from engine.doors.cli.main import app
from engine.services.mcp import servers

ENDS = json.dumps({"command": sys.executable, "args": ["-c", "import sys; sys.exit('no key')"]})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path))


def mcp(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["mcp", *arguments])


def test_a_server_is_added_listed_and_removed() -> None:
    assert "nowhere is added: no-such-program -y x" in mcp("add", "nowhere", "--command", "no-such-program -y x").stdout
    assert "ends is added" in mcp("add", "ends", "--config", ENDS).stdout
    shown = mcp("list").stdout
    assert "no-such-program of the MCP server nowhere is not there" in " ".join(shown.split())
    assert "no key" in shown
    (found,) = (json.loads(line) for line in mcp("list", "ends", "--json").stdout.splitlines() if '"ends"' in line)
    assert (found["name"], found["state"]) == ("ends", "failed")
    assert "nowhere is removed" in mcp("remove", "nowhere").stdout
    again = mcp("remove", "nowhere")
    assert (again.exit_code, again.stdout) == (1, "")
    assert "no MCP server 'nowhere'" in again.stderr


def test_a_rule_is_set_for_a_tool() -> None:
    mcp("add", "ends", "--config", ENDS)
    assert mcp("allow", "ends", "read", "always", "--digest", "ab").exit_code == 0
    assert servers.read()["ends"].rules == {"read": "ab"}
    assert mcp("allow", "ends", "read").exit_code == 0
    assert servers.read()["ends"].rules == {}
    assert mcp("allow", "ends", "read", "never").exit_code == 2
