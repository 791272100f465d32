"""Notices of the loaded model's limits: a button with their number, and a pop-up that wraps them."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QMenu, QPushButton, QWidget, QWidgetAction

from app.language import plural, tr
from app.theme.theme import Theme
from app.theme.widgets import button_text, named, tip

_WIDTH_PX = 340


class NotesButton(QPushButton):
    """Hidden while there is nothing to say."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__("▲", parent)
        self._theme = theme
        named(self, "model-notices", title=tr("What this model does without, and why"), kind="link")
        self.setMenu(QMenu(self))

    def say(self, notices: Sequence[str]) -> None:
        """One paragraph for each."""
        self.setVisible(bool(notices))
        self.setText(f"▲ {plural('1 note', '{n} notes', len(notices))}")
        self.setToolTip(tip("\n".join(notices)))
        self.menu().clear()
        for notice in notices:
            action = self._paragraph(notice)
            self.menu().addAction(action)

    def recolour(self) -> None:
        self.setStyleSheet(f"color: {self._theme.tokens.warn};")

    def _paragraph(self, notice: str) -> QWidgetAction:
        words = QLabel(notice, wordWrap=True, textInteractionFlags=Qt.TextInteractionFlag.TextSelectableByMouse)
        words.setContentsMargins(12, 8, 12, 8)
        words.setFixedWidth(self._theme.px(_WIDTH_PX))
        action = QWidgetAction(self.menu())
        action.setText(button_text(notice))
        action.setToolTip(tip(notice))
        action.setDefaultWidget(words)
        return action
