"""Tools of the shown chat: the servers chosen in its settings, and the dialog in which there are more."""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QWidget

from app.chat.session.session import ChatSession
from app.chat.settings.chat_settings import ChatSettings
from app.chat.settings.servers_dialog import ServersDialog
from app.link.link import EngineLink
from app.theme.theme import Theme
from engine.protocol.mcp import ListServers, McpServer
from engine.protocol.operations import LIST_SERVERS


class ChatTools(QObject):
    def __init__(
        self, link: EngineLink, session: ChatSession, settings: ChatSettings, theme: Theme, window: QWidget
    ) -> None:
        super().__init__(window)
        self._link, self._session, self._settings, self._choice = link, session, settings, settings.tools
        self._theme, self._window = theme, window
        self._servers: list[str] = []
        self._choice.chosen.connect(session.set_servers)
        self._choice.servers_asked.connect(self.open_servers)
        settings.opened.connect(self.refresh)
        for signal in (session.opened, session.settings_changed):
            signal.connect(self._show)
        self._show()

    def refresh(self) -> None:
        """Ask which servers there are; none is connected to for that."""
        self._link.call(LIST_SERVERS, ListServers(), self._take)

    def open_servers(self) -> None:
        self._settings.hide()
        dialog = ServersDialog(self._link, self._theme, self._window)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.added.connect(self._add)
        dialog.open()

    def _add(self, names: list[str]) -> None:
        """A server that was added from a chat's settings is for that chat."""
        chosen = self._session.talk.chat.servers
        self._session.set_servers([*chosen, *(name for name in names if name not in chosen)])

    def _take(self, servers: list[McpServer]) -> None:
        self._servers = [server.name for server in servers if server.state != "off"]
        self._show()

    def _show(self) -> None:
        self._choice.show_for(self._servers, self._session.talk.chat.servers)
