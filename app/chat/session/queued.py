"""A question that waits for the model: said above the composer, with ways to change or drop it."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QWidget

from app.language import tr
from app.theme.widgets import button_text, fill, named

WAITS = tr("Your question will be sent when the model is ready.")
WAITS_FOR_LAB = tr("Your question will be sent when the measurement is finished.")


class QueuedBar(QFrame):
    """Hidden while nothing waits."""

    edit_asked = Signal()
    cancelled = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        named(self, "queued-bar", card="notice")
        label = self._label = QLabel(self)
        label.setWordWrap(True)
        self.say(WAITS)
        row = fill(QHBoxLayout(self), (label, 1), margins=(24, 8, 16, 8), spacing=12)
        for name, title, does, signal in (
            ("edit", tr("Edit"), tr("Edit the question that waits"), self.edit_asked),
            ("cancel", tr("Cancel"), tr("Cancel the question that waits"), self.cancelled),
        ):
            button = QPushButton(button_text(title), self)
            named(button, f"queued-{name}", title=does, kind="quiet")
            button.clicked.connect(signal)
            row.addWidget(button)
        self.setVisible(False)

    @property
    def text(self) -> str:
        return self._label.text()

    def say(self, sentence: str) -> None:
        """Show what the question waits for."""
        self._label.setText(sentence)
        self.setAccessibleName(sentence)
