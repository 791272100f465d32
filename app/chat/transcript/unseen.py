"""Marks of what the model does not see in the transcript: a veil over a message, and a line that says so."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.theme.theme import CAPTION_PX, Theme

LINE_PX = 34
VEIL = 0.55
GAP = 12


class Veil(QWidget):
    """Dims all of its parent, which stays as usable as it was."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setObjectName("veil")
        self.fit()
        self.show()

    def fit(self) -> None:
        """The parent has another size, or new children."""
        parent = self.parentWidget()
        assert parent is not None, "it covers a message"
        self.setGeometry(parent.rect())
        self.raise_()

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(event.rect(), self._theme.color("bg", VEIL))


class UnseenLine(QWidget):
    """A hairline with a sentence in its middle."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self.text = ""
        self.setObjectName("unseen-line")
        self.hide()

    @property
    def room(self) -> int:
        """The height it takes, 0 while there is nothing to say."""
        return max(LINE_PX, self._theme.px(LINE_PX)) if self.text else 0

    def say(self, text: str) -> None:
        """ "" takes it off."""
        self.text = text
        self.setAccessibleName(text)
        self.setVisible(bool(text))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, area = QPainter(self), self.rect().adjusted(0, 0, 0, -GAP)
        painter.setFont(self._theme.ui_font(CAPTION_PX))
        text = painter.fontMetrics().elidedText(self.text, Qt.TextElideMode.ElideRight, area.width() - 4 * GAP)
        half = painter.fontMetrics().horizontalAdvance(text) // 2 + GAP
        center = area.center()
        painter.setPen(self._theme.color("warn", 0.6))
        painter.drawLine(area.left(), center.y(), center.x() - half, center.y())
        painter.drawLine(QPoint(center.x() + half, center.y()), QPoint(area.right(), center.y()))
        painter.setPen(self._theme.color("warn"))
        painter.drawText(area, Qt.AlignmentFlag.AlignCenter, text)
