"""MCP servers in the window: chosen for a chat, added, checked, removed, and the rules for their tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QLabel, QPushButton

from app.chat.page import ChatPage
from app.chat.settings.servers_dialog import NONE, ServersDialog, request_of
from app.chat.settings.tool_choice import OFF, SERVERS, ToolChoice
from app.chat.settings.tools import ChatTools
from app.link.calls import Calls
from engine.protocol.mcp import AddServer
from engine.protocol.rounds import CHANGED
from tests.app.chatting import chat_page

pytestmark = pytest.mark.qt_log_ignore("This plugin does not support", extend=True)
TOOL = {"name": "read", "called": "files__read", "description": "Read a file.", "rule": "always"}
FILES = {"name": "files", "command": ["npx", "files"], "state": "ready", "tools": [TOOL]}
WEB = {"name": "web", "url": "http://x/mcp", "state": "failed", "detail": "The MCP server web did not answer."}


def put(path: Path, *servers: object) -> None:
    path.write_text(json.dumps({"mcp.list": {"answer": servers}, "mcp.remove": {"answer": FILES}, "mcp.allow": {}}))


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    path = tmp_path / "answers.json"
    put(path, FILES, WEB)
    return path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    call = Calls.call

    def recording(self: Calls, operation: Any, request: Any, *rest: Any, **more: Any) -> Any:
        found.append((operation.name, request))
        return call(self, operation, request, *rest, **more)

    monkeypatch.setattr(Calls, "call", recording)
    return found


@pytest.fixture
def page(qtbot, make_link, history, theme, answers: Path, asked: list[tuple[str, Any]]) -> ChatPage:
    page = chat_page(make_link("--answers", str(answers)), history, theme)
    qtbot.addWidget(page, before_close_func=lambda page: page.close_down())
    page.resize(900, 900)
    page.show()
    return page


@pytest.fixture
def dialog(qtbot, page: ChatPage, asked: list[tuple[str, Any]]) -> ServersDialog:
    page.findChild(ChatTools).open_servers()
    (dialog,) = page.findChildren(ServersDialog)
    qtbot.waitUntil(lambda: "files" in labels(dialog))
    return dialog


def actions(choice: ToolChoice) -> dict[str, QAction]:
    return {action.text(): action for action in choice.menu().actions() if action.text()}


def labels(dialog: ServersDialog) -> list[str]:
    return [label.text() for label in dialog.findChildren(QLabel) if not label.isHidden()]


def press(qtbot, dialog: ServersDialog, name: str) -> None:
    button = dialog.findChild(QPushButton, name)
    assert button is not None, name
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def test_a_chat_has_the_tools_of_the_servers_that_are_chosen(qtbot, page: ChatPage, asked) -> None:
    choice = page.settings.tools
    assert choice.title == OFF
    page.dialogs.open_settings()
    qtbot.waitUntil(lambda: "files" in actions(choice))
    assert [request.servers for name, request in asked if name == "mcp.list"] == [[]], "none is connected to"
    actions(choice)["files"].trigger()
    actions(choice)["web"].trigger()
    assert page.session.talk.chat.servers == ("files", "web")
    assert choice.title == "files, web"
    actions(choice)["files"].trigger()
    assert page.session.talk.chat.servers == ("web",)
    actions(choice)[OFF].trigger()
    assert (page.session.talk.chat.servers, choice.title) == ((), OFF)
    page.settings.hide()


def test_one_that_is_gone_can_be_taken_out(page: ChatPage) -> None:
    page.session.set_servers(["old"])
    choice = page.settings.tools
    assert actions(choice)["old (not there)"].isChecked()
    actions(choice)["old (not there)"].trigger()
    assert page.session.talk.chat.servers == ()
    assert SERVERS in actions(choice)


def test_servers_are_shown_with_their_tools_or_the_reason_why_not(dialog: ServersDialog) -> None:
    shown = labels(dialog)
    assert {"ready", "npx files", "read · Read a file.", "failed", "http://x/mcp", WEB["detail"]} <= set(shown)


def test_check_asks_all_again(qtbot, dialog: ServersDialog, asked) -> None:
    press(qtbot, dialog, "mcp-check")
    request = asked[-1][1]
    assert (request.servers, request.again) == (["*"], True)
    assert not dialog.check.isEnabled()
    qtbot.waitUntil(dialog.check.isEnabled)


def test_the_list_has_a_row_for_each_server_however_often_they_are_asked(qtbot, dialog: ServersDialog) -> None:
    for _ in range(3):
        press(qtbot, dialog, "mcp-check")
        qtbot.waitUntil(dialog.check.isEnabled)
    assert dialog._list.count() == 2, "rows of the layout, stretches included"


def test_a_rule_is_set(qtbot, dialog: ServersDialog, asked) -> None:
    always = dialog.findChild(QPushButton, "rule.files__read.always")
    assert always is not None
    assert always.isChecked()
    press(qtbot, dialog, "rule.files__read.ask")
    name, request = asked[-1]
    assert (name, request.server, request.tool, request.rule) == ("mcp.allow", "files", "read", "ask")


def test_a_tool_that_changed_says_so_and_is_allowed_as_it_is_now(
    qtbot, dialog: ServersDialog, answers: Path, asked
) -> None:
    assert CHANGED not in labels(dialog)
    put(answers, {**FILES, "tools": [{**TOOL, "rule": "ask", "changed": True, "digest": "ab"}]})
    press(qtbot, dialog, "mcp-check")
    qtbot.waitUntil(lambda: CHANGED in labels(dialog))
    press(qtbot, dialog, "rule.files__read.always")
    assert (asked[-1][1].rule, asked[-1][1].digest) == ("always", "ab")


def test_a_server_that_asks_for_a_login_is_connected_when_the_button_is_pressed(
    qtbot, dialog: ServersDialog, answers: Path, asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("PySide6.QtGui.QDesktopServices.openUrl", lambda url: opened.append(url.toString()))
    assert dialog.findChild(QPushButton, "mcp-login.web") is None
    put(answers, FILES, {**WEB, "login": True})
    press(qtbot, dialog, "mcp-check")
    qtbot.waitUntil(lambda: dialog.findChild(QPushButton, "mcp-login.web") is not None)
    assert not [name for name, _ in asked if name == "mcp.login"]
    answers.write_text(
        json.dumps(
            {
                "mcp.login": {"events": [{"url": "https://x/login?a=b"}], "answer": FILES},
                "mcp.list": {"answer": [FILES]},
            }
        )
    )
    press(qtbot, dialog, "mcp-login.web")
    qtbot.waitUntil(lambda: dialog.findChild(QPushButton, "mcp-login.web") is None)
    assert opened == ["https://x/login?a=b"]
    assert [request.name for name, request in asked if name == "mcp.login"] == ["web"]


def test_one_is_removed(qtbot, dialog: ServersDialog, answers: Path, asked) -> None:
    put(answers)
    press(qtbot, dialog, "mcp-remove.files")
    qtbot.waitUntil(lambda: NONE in labels(dialog))
    assert ("mcp.remove", "files") in [(name, getattr(request, "name", "")) for name, request in asked]


@pytest.mark.slow
def test_one_is_added_by_a_process_of_the_program(
    qtbot, page: ChatPage, dialog: ServersDialog, own_folders: Path, asked
) -> None:
    dialog.name.setText("notes")
    dialog.text.setPlainText("npx -y notes")
    with qtbot.waitSignal(dialog.added, timeout=60_000) as added:
        press(qtbot, dialog, "mcp-add")
    assert added.args == [["notes"]]
    kept = json.loads((own_folders / "kvasir" / "config" / "mcp.json").read_text())
    assert kept == {"mcpServers": {"notes": {"command": "npx", "args": ["-y", "notes"]}}}
    assert page.session.talk.chat.servers == ("notes",)
    assert asked[-1][1].servers == ["notes"], "it is asked for its tools"
    assert "mcp.add" not in [name for name, _ in asked]
    qtbot.waitUntil(dialog.add_button.isEnabled)
    dialog.text.setPlainText("npx -y notes")
    dialog.name.setText("notes")
    press(qtbot, dialog, "mcp-add")
    qtbot.waitUntil(lambda: "an MCP server notes already" in dialog.sentence.text(), timeout=60_000)
    qtbot.waitUntil(dialog.add_button.isEnabled)


def test_what_is_typed_is_a_command_an_address_or_json() -> None:
    assert request_of("a", " npx x\n") == AddServer(name="a", command="npx x")
    assert request_of("a", "https://x/mcp") == AddServer(name="a", url="https://x/mcp")
    assert request_of("", '{"mcpServers": {}}') == AddServer(config='{"mcpServers": {}}')
