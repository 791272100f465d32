"""A calm line below the top bar: what happened and what to do, closed by the person or by the next good news."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QToolButton, QWidget

from app.theme.icons import icon
from app.theme.sheet import restyle
from app.theme.theme import Theme

Tone = Literal["notice", "bad"]


class NoticeBar(QFrame):
    """Shows one sentence at a time, the newest; ``topic`` lets whoever showed it take it away again."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._topic = ""
        self._act: Callable[[], None] | None = None
        self.setObjectName("window.notice")
        self.setProperty("card", "notice")
        self._label = QLabel()
        self._label.setObjectName("window.notice.text")
        self._label.setWordWrap(True)
        self._label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._label.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self._action = QPushButton()
        self._action.setObjectName("window.notice.action")
        self._action.clicked.connect(self._do)
        self._action.setAccessibleName("Notice")
        self._close = QToolButton()
        self._close.setProperty("kind", "quiet")
        self._close.setIconSize(QSize(14, 14))
        self._close.setAccessibleName("Close the notice")
        self._close.clicked.connect(lambda: self.clear())
        row = QHBoxLayout(self)
        row.setContentsMargins(16, 6, 10, 6)
        row.setSpacing(12)
        row.addWidget(self._label, 1)
        row.addWidget(self._action)
        row.addWidget(self._close, 0, Qt.AlignmentFlag.AlignTop)
        self._recolour()
        theme.changed.connect(self._recolour)
        self.hide()

    @property
    def text(self) -> str:
        """The sentence on show, empty when the bar is hidden."""
        return self._label.text() if not self.isHidden() else ""

    def say(
        self, text: str, tone: Tone = "notice", topic: str = "", action: str = "", act: Callable[[], None] | None = None
    ) -> None:
        """Show ``text``; ``action`` names a button that calls ``act``."""
        self._topic, self._act = topic, act
        self._label.setText(text)
        self._action.setText(action)
        self._action.setAccessibleName(action or "Notice")
        self._action.setVisible(bool(action))
        self.setProperty("card", tone)
        self.setAccessibleName(text)
        restyle(self)
        self.show()

    def clear(self, topic: str = "") -> None:
        """Hide the bar; with a topic only when that topic is on show."""
        if topic and topic != self._topic:
            return
        self.hide()

    def _do(self) -> None:
        self.hide()
        if self._act is not None:
            self._act()

    def _recolour(self) -> None:
        self._close.setIcon(icon(self._theme, "close", 14))
