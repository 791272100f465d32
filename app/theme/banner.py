"""A calm line over the width of its place: what happened and what to do, with an action or two and a way to close."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QToolButton, QWidget

from app.theme.icons import icon
from app.theme.sheet import restyle
from app.theme.theme import Theme
from app.theme.widgets import button_text

Tone = Literal["notice", "bad"]
_ICON_PX = 14


class Banner(QFrame):
    """Hidden until :meth:`show_words`. ``name`` begins the object names of its parts."""

    def __init__(self, theme: Theme, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setObjectName(name)
        self.setProperty("card", "notice")
        self._label = QLabel()
        self._label.setObjectName(f"{name}.text")
        self._label.setWordWrap(True)
        self._label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._label.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self._action = QPushButton()
        self._action.setObjectName(f"{name}.action")
        self._action.setAccessibleName("What to do")
        self._action.hide()
        self._other = QPushButton()
        self._other.setObjectName(f"{name}.other")
        self._other.setProperty("kind", "quiet")
        self._other.hide()
        self._close = QToolButton()
        self._close.setProperty("kind", "quiet")
        self._close.setAccessibleName("Close the notice")
        self._close.clicked.connect(self.hide)
        row = QHBoxLayout(self)
        row.setContentsMargins(16, 6, 10, 6)
        row.setSpacing(12)
        row.addWidget(self._label, 1)
        row.addWidget(self._action)
        row.addWidget(self._other)
        row.addWidget(self._close, 0, Qt.AlignmentFlag.AlignTop)
        self._recolour()
        theme.changed.connect(self._recolour)
        self.hide()

    @property
    def text(self) -> str:
        """The sentence on show, empty when the banner is hidden."""
        return "" if self.isHidden() else self._label.text()

    def show_words(self, text: str, tone: Tone, action: str, other: str = "") -> None:
        """``action`` and ``other`` are what stands on the buttons; empty for none."""
        self._label.setText(text)
        self._action.setText(button_text(action))
        self._action.setAccessibleName(action or "What to do")
        self._action.setVisible(bool(action))
        self._other.setText(button_text(other))
        self._other.setVisible(bool(other))
        self.setProperty("card", tone)
        self.setAccessibleName(text)
        restyle(self)
        self.show()

    def _recolour(self) -> None:
        side = self._theme.px(_ICON_PX)
        self._close.setIcon(icon(self._theme, "close", side))
        self._close.setIconSize(QSize(side, side))
