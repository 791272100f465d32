"""Named keys: made, shown once, listed and revoked."""

from __future__ import annotations

from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QLineEdit, QPushButton, QVBoxLayout, QWidget

from app.language import tr
from app.server import words
from app.server.code import CopyButton
from app.server.state import ServerState
from app.theme.question import ask
from app.theme.widgets import ElidedLabel, caption, clear, fill, named, say
from engine.protocol.access import NamedKey


class KeysView(QWidget):
    """Shows the state's keys."""

    def __init__(self, state: ServerState) -> None:
        super().__init__()
        self._state = state
        self._shown: list[NamedKey] | None = None
        self.name = QLineEdit()
        self.name.setPlaceholderText(tr("Name of the program, e.g. zed"))
        named(self.name, "server.key.name", title=tr("Name of a new key"), maxLength=63)
        self.name.returnPressed.connect(self._add)
        self.add = QPushButton(tr("Make a key"))
        named(self.add, "server.key.add", title=self.add.text(), clicked=self._add)
        self.problem = named(caption(name="server.key.problem"), role="bad")
        self._list = fill(QVBoxLayout(), spacing=4)
        self.none = caption(words.NO_KEYS, "server.key.none")
        column = fill(QVBoxLayout(self), fill(QHBoxLayout(), (self.name, 1), self.add), margins=0, spacing=8)
        fill(column, self.problem, self._made_card(), self.none, self._list)
        state.changed.connect(self._show)
        self._show()

    def _made_card(self) -> QFrame:
        self.made = named(QFrame(), card="choice")
        self.title = named(QLabel(), role="figure")
        self.secret = named(QLineEdit(readOnly=True), "server.key.secret", title=tr("The new key"))
        self.copy = CopyButton("server.key.copy", tr("Copy the new key"))
        self.done = named(QPushButton(tr("Done")), "server.key.done", title=tr("Hide the new key"), kind="quiet")
        self.done.clicked.connect(self._state.forget_made)
        line = fill(QHBoxLayout(), (self.secret, 1), self.copy, self.done, spacing=8)
        fill(QVBoxLayout(self.made), self.title, line, caption(words.SHOWN_ONCE), margins=(14, 10, 12, 10), spacing=8)
        return self.made

    def _add(self) -> None:
        if name := self.name.text().strip():
            self._state.add_key(name)
        else:
            self.name.setFocus()

    def _show(self) -> None:
        state, made = self._state, self._state.made
        say(self.problem, state.key_problem)
        self.none.setVisible(not state.keys)
        self.made.setVisible(made is not None)
        if made is not None and made.key != self.secret.text():
            self.title.setText(tr("The key {name}", name=made.record.name))
            self.secret.setText(made.key)
            self.secret.setCursorPosition(0)
            self.copy.text_to_copy = made.key
            self.name.clear()
        if made is None:
            self.secret.clear()
            self.copy.text_to_copy = ""
        if state.keys != self._shown:
            self._shown = list(state.keys)
            clear(self._list)
            for key in state.keys:
                self._list.addWidget(self._row(key))

    def _row(self, key: NamedKey) -> QWidget:
        row = QWidget()
        name = ElidedLabel(key.name, "figure")
        revoke = QPushButton(tr("Revoke…"))
        named(revoke, f"server.key.revoke.{key.name}", title=tr("Revoke the key {name}", name=key.name), kind="quiet")
        revoke.clicked.connect(lambda: self._ask(key))
        lines = fill(QVBoxLayout(), name, caption(words.about_key(key)), spacing=2)
        fill(QHBoxLayout(row), (lines, 1), revoke, margins=0, spacing=16)
        return row

    def _ask(self, key: NamedKey) -> None:
        title, sentence, go = tr("Revoke a key"), words.revoke(key), tr("Revoke")
        ask(self.window(), "server.revoke", title, sentence, go, lambda: self._state.revoke(key.name))
