"""Configurations to copy for the program that is chosen, with address, key and model put in."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.language import tr
from app.server.code import CodeCard
from app.server.configurations import CLIENTS, texts
from app.server.state import ServerState
from app.theme.menus import ChoiceButton
from app.theme.theme import Theme
from app.theme.widgets import caption, clear, fill, named, say

_WIDTH = 220
_BY_KEY = {client.key: client for client in CLIENTS}


class ConnectView(QWidget):
    """Shows the configuration of one program at a time."""

    def __init__(self, state: ServerState, theme: Theme) -> None:
        super().__init__()
        self._state, self._theme = state, theme
        self.choice = ChoiceButton(tr("Program to connect"), {client.key: client.title for client in CLIENTS})
        named(self.choice, "server.client").choose(CLIENTS[0].key)
        self.about = caption(name="server.client.about")
        self.cards: list[CodeCard] = []
        self._column = fill(QVBoxLayout(), spacing=8)
        left = Qt.AlignmentFlag.AlignLeft
        fill(QVBoxLayout(self), (self.choice, 0, left), self.about, self._column, margins=0, spacing=8)
        self.choice.changed.connect(self._choose)
        state.values_changed.connect(self._refresh)
        theme.changed.connect(self._fit)
        self._fit()
        self._choose()

    def _texts(self) -> list[tuple[str, str]]:
        return texts(_BY_KEY[str(self.choice.key)], self._state.values)

    def _choose(self) -> None:
        clear(self._column)
        say(self.about, _BY_KEY[str(self.choice.key)].about)
        self.cards = [
            CodeCard(f"server.text.{number}", where, text, self._theme)
            for number, (where, text) in enumerate(self._texts())
        ]
        for card in self.cards:
            self._column.addWidget(card)

    def _refresh(self) -> None:
        for card, (_, text) in zip(self.cards, self._texts(), strict=True):
            card.show_text(text)

    def _fit(self) -> None:
        self.choice.setFixedWidth(self._theme.px(_WIDTH))
