"""The dialog with the user's MCP servers: added, checked, removed, and the rules for their tools."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial

import msgspec
from PySide6.QtCore import QSize, Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import (
    QBoxLayout,
    QDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.command import End, LineCommand
from app.language import tr
from app.link.calls import Caller
from app.texts.exact import ExactTextEdit
from app.theme.room import room_of, scrolling
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, Segments, caption, clear, fill, named, say, show_badge
from engine.base.installation import program_command
from engine.protocol import CallAnswer, Error
from engine.protocol.mcp import AddServer, AllowTool, ListServers, LogIn, LoginPage, McpServer, McpTool, RemoveServer
from engine.protocol.operations import ADD_SERVER, ALLOW_TOOL, LIST_SERVERS, LOG_IN, REMOVE_SERVER
from engine.protocol.rounds import CHANGED, KnownTool

SIZE = QSize(680, 620)
ABOUT = tr(
    "Programs and addresses whose tools a model can use in a chat (Model Context Protocol). A program runs with your "
    "rights: add only what you trust. Each call is shown, and asked for unless its tool is always allowed."
)
NONE = tr("There are no MCP servers yet.")
ADD_HINT = 'npx -y @modelcontextprotocol/server-filesystem /home/me\nhttps://example.com/mcp\n{"mcpServers": {…}}'
STATES = {
    "off": (tr("off"), "mute"),
    "unasked": ("", "mute"),
    "ready": (tr("ready"), "good"),
    "failed": (tr("failed"), "bad"),
}
CHECKING = tr("Asking the servers for their tools…")
LOGGING_IN = tr("Log in on the page that opens in your browser…")
FIELD_PX = 76
CENTRE = Qt.AlignmentFlag.AlignVCenter


def request_of(name: str, text: str) -> AddServer:
    """What was typed, as a request: JSON, an address or a command."""
    text = text.strip()
    if text.startswith("{"):
        return AddServer(name=name, config=text)
    if text.startswith(("http://", "https://")):
        return AddServer(name=name, url=text)
    return AddServer(name=name, command=text)


def _decode(line: str) -> CallAnswer | Error:
    return msgspec.json.decode(line, type=CallAnswer | Error)


def _open_page(page: LoginPage) -> None:
    QDesktopServices.openUrl(QUrl(page.url))


class ServersDialog(QDialog):
    """``added`` carries the names of servers that were added here."""

    added = Signal(list)

    def __init__(self, engine: Caller, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._engine, self._theme = engine, theme
        self._servers: list[McpServer] = []
        named(self, "mcp-servers", windowTitle=tr("MCP servers"))
        self.resize((SIZE * max(1.0, theme.scale)).boundedTo(room_of(self)))
        inside = QWidget()
        self._list = fill(QVBoxLayout(), margins=0, spacing=10)
        fill(QVBoxLayout(inside), self._list, 1, margins=(24, 4, 24, 12), spacing=0)
        self.sentence = caption(name="mcp-sentence")
        self.name = named(QLineEdit(placeholderText=tr("Name")), "mcp-name", title=tr("Name of the new server"))
        self.text = named(ExactTextEdit(self), field="true", tabChangesFocus=True)
        named(self.text, "mcp-text", title=tr("Command, address or JSON of the new server"), placeholderText=ADD_HINT)
        self.text.setFixedHeight(theme.px(FIELD_PX))
        self.check = named(QPushButton(tr("Check")), "mcp-check", clicked=self.ask_all, kind="quiet")
        self.check.setToolTip(tr("Connect to all servers and show their tools"))
        self.add_button = named(QPushButton(tr("Add")), "mcp-add", clicked=self.add, kind="primary")
        close = named(QPushButton(tr("Close")), "mcp-close", clicked=self.accept)
        for button in (self.check, self.add_button, close):
            button.setAutoDefault(False)
        head = fill(QHBoxLayout(), named(QLabel(tr("MCP servers")), role="title"), 1, self.check)
        top = fill(QVBoxLayout(), head, caption(ABOUT), margins=(24, 16, 24, 8), spacing=8)
        new = fill(QVBoxLayout(), named(QLabel(tr("Add a server")), role="section"), margins=(24, 8, 24, 0), spacing=6)
        fill(new, self.name, self.text, self.sentence)
        foot = fill(QHBoxLayout(), 1, close, self.add_button, margins=(16, 8, 16, 16), spacing=8)
        fill(QVBoxLayout(self), top, (scrolling(inside, tr("MCP servers")), 1), new, foot, margins=0, spacing=0)
        say(self.sentence, "")
        self._show([])
        self._ask([])

    def ask_all(self) -> None:
        """Connect to each server, those that failed, too."""
        self._ask(["*"], again=True)

    def add(self) -> None:
        """Add what was typed, by a process of the program: no client of the engine can name what is started here."""
        say(self.sentence, tr("Adding it…"), "caption")
        self.add_button.setEnabled(False)
        given = msgspec.json.encode(request_of(self.name.text().strip(), self.text.toPlainText()))
        arguments = ["operation", ADD_SERVER.name]
        run = LineCommand(program_command(), arguments, _decode, "kvasir mcp add", self, given)  # not shown
        run.heard(self._on_added, self._on_end)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _ask(self, servers: Sequence[str], again: bool = False) -> None:
        if servers:
            self.check.setEnabled(False)
            say(self.sentence, CHECKING, "caption")
        request = ListServers(servers=list(servers), again=again)
        self._engine.call(LIST_SERVERS, request, partial(self._listed, bool(servers)), self._failed)

    def _listed(self, asked: bool, servers: list[McpServer]) -> None:
        known = {server.name: server for server in self._servers}
        self._show([known.get(each.name, each) if each.state == "unasked" else each for each in servers])
        self.check.setEnabled(bool(servers))
        if asked:
            say(self.sentence, "")

    def _failed(self, error: Error) -> None:
        self.check.setEnabled(True)
        say(self.sentence, error.message, "bad")

    def _on_added(self, told: CallAnswer | Error) -> None:
        if isinstance(told, Error):
            self._failed(told)
            return
        names = [server.name for server in ADD_SERVER.read_answer(told.answer)]
        self.name.clear()
        self.text.clear()
        self.added.emit(names)
        self._ask(names)

    def _on_end(self, end: End) -> None:
        self.add_button.setEnabled(True)
        if not end.ok:
            say(self.sentence, end.sentence, "bad")

    def _remove(self, name: str) -> None:
        self._engine.call(REMOVE_SERVER, RemoveServer(name=name), lambda _: self._ask([]), self._failed)

    def _log_in(self, name: str) -> None:
        say(self.sentence, LOGGING_IN, "caption")
        request = LogIn(name=name)
        self._engine.call(LOG_IN, request, lambda _: self._ask([name], again=True), self._failed, _open_page)

    def _allow(self, known: KnownTool, rule: str) -> None:
        request = known.always if rule == "always" else AllowTool(server=known.server, tool=known.tool.name)
        self._engine.call(ALLOW_TOOL, request, on_error=self._failed)

    def _show(self, servers: Sequence[McpServer]) -> None:
        self._servers = list(servers)
        clear(self._list)
        if not servers:
            self._list.addWidget(caption(NONE))
        for server in servers:
            self._list.addWidget(self._card(server))

    def _card(self, server: McpServer) -> QFrame:
        card = named(QFrame(), f"mcp.{server.name}")
        column = fill(QVBoxLayout(card), margins=(0, 4, 0, 4), spacing=4)
        badge = QLabel()
        show_badge(badge, *STATES[server.state])
        remove = named(QPushButton(tr("Remove")), f"mcp-remove.{server.name}", kind="quiet")
        named(remove, title=tr("Remove {name}", name=server.name), clicked=lambda: self._remove(server.name))
        remove.setAutoDefault(False)
        head = fill(QHBoxLayout(), named(QLabel(server.name), role="figure"), (badge, 0, CENTRE), 1, spacing=8)
        if server.login:
            connect = named(QPushButton(tr("Connect")), f"mcp-login.{server.name}")
            connect.setAccessibleName(tr("Log in at {name}", name=server.name))
            connect.setAutoDefault(False)
            head.addWidget(named(connect, clicked=lambda: self._log_in(server.name)))
        fill(column, fill(head, remove))
        column.addWidget(ElidedLabel(server.url or shlex.join(server.command), "caption"))
        if server.detail:
            column.addWidget(named(QLabel(server.detail, wordWrap=True), role="bad"))
        for tool in server.tools:
            column.addLayout(self._tool(server.name, tool))
        return card

    def _tool(self, server: str, tool: McpTool) -> QBoxLayout:
        name = ElidedLabel(f"{tool.name} · {tool.description.partition(chr(10))[0]}".rstrip(" ·"), "")
        titles = [tr("Ask", "before a tool is run"), tr("Always")]
        rules = Segments(tr("Rule for {name}", name=tool.name), ["ask", "always"], titles, f"rule.{tool.called}")
        rules.choose(tool.rule)
        rules.chosen.connect(partial(self._allow, KnownTool(server, tool)))
        row = fill(QHBoxLayout(), (name, 1), rules, spacing=12)
        return fill(QVBoxLayout(), row, caption(CHANGED), spacing=2) if tool.changed else row
