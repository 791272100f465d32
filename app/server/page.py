"""The page Server: whether other programs can use the engine, with which keys and how, and what they ask."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.language import tr
from app.server import words
from app.server.code import CopyButton
from app.server.connect import ConnectView
from app.server.keys import KeysView
from app.server.requests import RequestsView
from app.server.state import ServerState
from app.theme.numbers import WholeNumber
from app.theme.room import scrolling
from app.theme.sheet import set_role
from app.theme.theme import Theme
from app.theme.widgets import FocusFirst, PageTitle, Toggle, caption, fill, named, show_checked, switched

_WIDTH = 820


class ServerPage(FocusFirst):
    """Asks for keys and requests while it is shown."""

    def __init__(self, state: ServerState, theme: Theme) -> None:
        super().__init__()
        self._state, self._theme = state, theme
        named(self, surface="bg")
        self._body = QWidget()
        column = fill(QVBoxLayout(self._body), margins=(24, 16, 24, 24), spacing=10)
        fill(column, PageTitle(tr("Server")), caption(words.ABOUT))
        self._add_switch(column)
        _section(column, tr("Keys"))
        self.keys = KeysView(state)
        fill(column, caption(words.KEYS), self.keys)
        _section(column, tr("Connect a program"))
        self.connect_view = ConnectView(state, theme)
        column.addWidget(self.connect_view)
        _section(column, tr("Requests"))
        self.requests = RequestsView(state, theme)
        fill(column, self.requests, 1)
        holder = QWidget()
        fill(QHBoxLayout(holder), 1, (self._body, 1000), 1, margins=0)
        fill(QVBoxLayout(self), scrolling(holder, sideways=True), margins=0)
        state.changed.connect(self._show)
        theme.changed.connect(self._fit)
        self._fit()
        self._show()

    def _add_switch(self, column: QVBoxLayout) -> None:
        settings = self._state.store.settings
        serve, port = tr("Serve other programs"), tr("Port")
        self.toggle = self.first = named(Toggle(self._theme), "server.serve", title=serve)
        self.toggle.setChecked(settings.serve)
        switched(self.toggle, lambda on: self._state.store.update(serve=on))
        self.status = caption(name="server.status")
        self.copy = CopyButton("server.address.copy", tr("Copy the address"))
        self.port = named(WholeNumber(), "server.port", title=port)
        self.port.setRange(1, 65535)
        self.port.setValue(settings.serve_port)
        self.port.editingFinished.connect(lambda: self._state.store.update(serve_port=self.port.value()))
        said = fill(QVBoxLayout(), QLabel(serve), self.status, spacing=2)
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        fill(column, fill(QHBoxLayout(), (said, 1), (self.copy, 0, right), (self.toggle, 0, right), spacing=16))
        fill(column, fill(QHBoxLayout(), (QLabel(port), 1), (self.port, 0, right), spacing=16))

    def _show(self) -> None:
        state = self._state
        show_checked(self.toggle, state.store.settings.serve)
        self.status.setText(state.status)
        set_role(self.status, "good" if state.url else "bad" if state.problem and state.wanted else "caption")
        self.copy.setVisible(bool(state.url))
        self.copy.text_to_copy = state.url

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._state.look(True)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._state.look(False)

    def _fit(self) -> None:
        self._body.setMaximumWidth(self._theme.px(_WIDTH))


def _section(column: QVBoxLayout, title: str) -> None:
    label = named(QLabel(title), role="section")
    label.setContentsMargins(0, 16, 0, 0)
    column.addWidget(label)
