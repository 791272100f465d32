"""A text to be copied, as it is, in a frame with its button."""

from __future__ import annotations

import math

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QFontMetricsF, QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QPushButton, QVBoxLayout

from app.language import tr
from app.theme.theme import Theme
from app.theme.widgets import caption, fill, named

COPIED_MS = 1500


class CopyButton(QPushButton):
    """Copies what ``text`` is at the moment."""

    def __init__(self, name: str, title: str) -> None:
        super().__init__(tr("Copy"))
        named(self, name, title=title, clicked=self._copy)
        self.text_to_copy = ""
        self._said = QTimer(self, singleShot=True, interval=COPIED_MS)
        self._said.timeout.connect(lambda: self.setText(tr("Copy")))

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.text_to_copy)
        self.setText(tr("Copied"))
        self._said.start()


class CodeCard(QFrame):
    """``where`` the text goes stands above it."""

    def __init__(self, name: str, where: str, text: str, theme: Theme) -> None:
        super().__init__()
        named(self, card="code")
        self.copy = named(CopyButton(f"{name}.copy", tr("Copy: {place}", place=where)), kind="link")
        self.view = named(QPlainTextEdit(readOnly=True), name, title=where, tabChangesFocus=True)
        self.view.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.view.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._theme = theme
        head = fill(QHBoxLayout(), (caption(where), 1), self.copy)
        fill(QVBoxLayout(self), head, self.view, margins=(14, 8, 8, 8), spacing=4)
        self.show_text(text)
        theme.changed.connect(self._fit)

    def show_text(self, text: str) -> None:
        if text != self.view.toPlainText():
            self.view.setPlainText(text)
        self.copy.text_to_copy = text
        self._fit()

    def _fit(self) -> None:
        """As high as its lines: the page scrolls, not each text."""
        font = self._theme.mono_font()
        self.view.document().setDefaultFont(font)
        lines = self.view.blockCount() * math.ceil(QFontMetricsF(font).lineSpacing())
        bar = self.view.horizontalScrollBar().sizeHint().height()
        self.view.setFixedHeight(math.ceil(lines + 2 * self.view.document().documentMargin()) + bar)
