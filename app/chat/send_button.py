"""Button that sends a message, and stops the answer that is being written."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QPushButton, QWidget

from app.language import tr
from app.theme.sheet import restyle
from app.theme.widgets import named

SEND = tr("Send"), tr("Send the message")
"""Words on the button, and what it does for who hears that instead of seeing it."""
_STOP = tr("Stop"), tr("Stop the answer")


class SendButton(QPushButton):
    """``sent``: what is written is to go; ``stopped``: the answer is to end."""

    sent = Signal()
    stopped = Signal()

    def __init__(self, name: str, parent: QWidget) -> None:
        super().__init__(parent)
        self._stops = False
        named(self, name, kind="primary", clicked=self._press)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.show_state(False, False)

    def show_state(self, stops: bool, takes: bool, words: tuple[str, str] = SEND) -> None:
        """It ``stops`` an answer, or has these ``words`` and can be pressed if it ``takes`` what is written."""
        self._stops = stops
        title, does = _STOP if stops else words
        if self.text() != title:
            self.setText(title)
            self.setProperty("kind", "" if stops else "primary")
            restyle(self)
        self.setAccessibleName(does)
        self.setEnabled(stops or takes)

    def _press(self) -> None:
        (self.stopped if self._stops else self.sent).emit()
