"""The Lab's first page: a card for each experiment."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout

from app.lab import words
from app.lab.layout import label
from app.theme.sheet import set_role
from engine.protocol.lab import LabPage


class Card(QFrame):
    """``opened`` carries the name of the experiment."""

    opened = Signal(str)

    def __init__(self, page: LabPage) -> None:
        super().__init__()
        self.page = page
        self.setProperty("card", "choice")
        self.setObjectName(f"lab.card.{page.name}")
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        column = QVBoxLayout(self)
        column.setContentsMargins(14, 12, 14, 12)
        column.setSpacing(6)
        open_it = QPushButton(words.heading(page).replace("&", "&&"))
        open_it.setObjectName(f"lab.open.{page.name}")
        open_it.setProperty("kind", "heading")
        open_it.setAccessibleName(f"Open experiment {page.number}: {page.title}")
        open_it.clicked.connect(lambda: self.opened.emit(page.name))
        self._tick = label("✓", "good")
        head = QHBoxLayout()
        head.addWidget(open_it)
        head.addStretch(1)
        head.addWidget(self._tick)
        column.addLayout(head)
        column.addWidget(label(page.question, "caption"))
        column.addStretch(1)
        self.found = label("", "caption", f"lab.card.{page.name}.found")
        column.addWidget(self.found)
        for words_of_it in self.findChildren(QLabel):  # a click on them opens it too
            words_of_it.setTextInteractionFlags(Qt.TextInteractionFlag.NoTextInteraction)

    def show_state(self, found: str, running: bool, note: str) -> None:
        """What was found last, "" for nothing; whether it runs now, and how its last run ended."""
        page = self.page
        self._tick.setVisible(bool(found))
        if running:
            text, role = "Running now…", "caption"
        elif note and not (found and note == words.STOPPED):
            text, role = note, "caption" if note == words.STOPPED else "bad"
        elif found:
            text, role = found, "small-figure"
        elif page.refused:
            text, role = words.refusal(page), "warn"
        else:
            text, role = words.minutes(page.seconds), "caption"
        self.found.setText(f"{text[0].upper()}{text[1:]}")
        set_role(self.found, role)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        event.accept()
        if event.button() is Qt.MouseButton.LeftButton and self.rect().contains(event.position().toPoint()):
            self.opened.emit(self.page.name)
