"""A calm line in place: what happened and what to do, with at most one action."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QWidget

from app.theme.sheet import restyle


class Notice(QFrame):
    """Hidden until :meth:`say`. ``acted`` carries the action's name."""

    acted = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("notice")
        self._action = ""
        self._label = QLabel(self)
        self._label.setWordWrap(True)
        self._label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._button = QPushButton(self)
        self._button.setObjectName("notice-action")
        self._button.setAccessibleName("What to do")
        self._button.setVisible(False)
        self._button.clicked.connect(lambda: self.acted.emit(self._action))
        self._close = QPushButton("Dismiss", self)
        self._close.setProperty("kind", "quiet")
        self._close.setAccessibleName("Dismiss this notice")
        self._close.clicked.connect(self.dismiss)
        row = QHBoxLayout(self)
        row.setContentsMargins(24, 8, 16, 8)
        row.setSpacing(12)
        row.addWidget(self._label, 1)
        row.addWidget(self._button)
        row.addWidget(self._close)
        self.setVisible(False)

    @property
    def text(self) -> str:
        return "" if self.isHidden() else self._label.text()

    def say(self, sentence: str, bad: bool = False, action: str = "", title: str = "") -> None:
        """``action`` is the name given to ``acted``, ``title`` what stands on its button."""
        self._label.setText(sentence)
        self._action = action
        self._button.setText(title)
        self._button.setAccessibleName(title)
        self._button.setVisible(bool(action))
        self.setProperty("card", "bad" if bad else "notice")
        self.setAccessibleName(sentence)
        restyle(self)
        self.setVisible(True)

    def dismiss(self) -> None:
        self.setVisible(False)
