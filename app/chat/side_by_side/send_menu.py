"""Next to Send: other ways to ask what was typed."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QMenu, QPushButton, QWidget

from app.language import tr
from app.theme.widgets import menu_text, named, tip

SEVERAL = tr("Ask several…")


class SendMenu(QPushButton):
    """``several_asked``: the person wants several answers; ``again_asked``: with the columns of the last time."""

    several_asked = Signal()
    again_asked = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__("▾", parent)
        words = tr("Ask for two to four answers side by side")
        named(self, "send-more", title=tr("Other ways to send"), tooltip=tip(words), kind="quiet")
        self._menu = QMenu(self)
        self.several = named(self._menu.addAction(SEVERAL), "send.several")
        self.again = named(self._menu.addAction(""), "send.again", visible=False)
        self.several.triggered.connect(lambda _=False: self.several_asked.emit())
        self.again.triggered.connect(lambda _=False: self.again_asked.emit())
        self.setMenu(self._menu)

    def remember(self, headings: Sequence[str]) -> None:
        """Offer the columns of the last time."""
        self.again.setText(menu_text(tr("Ask: {names}", names=" | ".join(headings))))
        self.again.setVisible(bool(headings))
