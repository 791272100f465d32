"""Card next to the mouse that shows what a page or a run of the tree holds."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtWidgets import QFrame, QLabel, QVBoxLayout, QWidget

from app.theme.widgets import fill, named, say

WIDTH = 344
GAP = 10


class HoverCard(QFrame):
    """Lies over the window it belongs to, lets the mouse through, and stays inside."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        named(self, "cache-card", card="tip")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._title = named(QLabel(), role="figure")
        self._line = named(QLabel(), role="caption")
        self._text = QLabel()
        column = fill(QVBoxLayout(self), margins=(12, 8, 12, 8), spacing=4)
        for label in (self._title, self._line, self._text):
            named(label, textFormat=Qt.TextFormat.PlainText, wordWrap=True)
            column.addWidget(label)
        self.setFixedWidth(WIDTH)
        self.hide()

    @property
    def words(self) -> str:
        """All that it says, "" while hidden."""
        if self.isHidden():
            return ""
        shown = (label.text() for label in (self._title, self._line, self._text) if not label.isHidden())
        return "\n".join(shown)

    def say(self, title: str, line: str, text: str, near: QRect) -> None:
        """Show these words near ``near`` (in the window's coordinates)."""
        for label, words in ((self._title, title), (self._line, line), (self._text, text)):
            say(label, words)
        self.setAccessibleName(f"{title}. {line}. {text}")
        self.adjustSize()
        self.resize(WIDTH, self.heightForWidth(WIDTH))
        parent = self.parentWidget()
        assert parent is not None, "it lies over the window"
        room = parent.rect().adjusted(GAP, GAP, -GAP, -GAP)
        x = min(max(near.center().x() - WIDTH // 2, room.left()), room.right() - WIDTH)
        above = near.top() - GAP - self.height()
        self.move(QPoint(x, above if above >= room.top() else near.bottom() + GAP))
        self.show()
        self.raise_()
