"""Sizes that fit the screen: parts that are scrolled if it is too small for them, and sizes that stay on it."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QFrame, QScrollArea, QWidget

from app.theme.widgets import named

_TITLE_PX = 40
"""Height of a desktop's frame around a window, about."""
_LEAST_PX = 80


def room_of(widget: QWidget) -> QSize:
    """The most that a window may take of the screen that ``widget`` is on, in its pixels."""
    return widget.screen().availableSize() - QSize(0, _TITLE_PX)


def scrolling(inner: QWidget | None = None, title: str = "", sideways: bool = False) -> QScrollArea:
    """Area that scrolls, downwards alone unless ``sideways``. One with a ``title`` takes the keyboard itself."""
    focus = Qt.FocusPolicy.TabFocus if title else Qt.FocusPolicy.NoFocus
    area = named(QScrollArea(widgetResizable=True), focusPolicy=focus)
    if title:
        named(area, title=title, ring="true")
    if not sideways:
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    if inner is not None:
        area.setWidget(inner)
    return area


class Scrolled(QScrollArea):
    """Something as large as it needs to be where there is room, and scrolled where there is not."""

    def __init__(self, inner: QWidget) -> None:
        super().__init__()
        named(self, frameShape=QFrame.Shape.NoFrame, focusPolicy=Qt.FocusPolicy.NoFocus, widgetResizable=True)
        self._inner = inner
        self.setWidget(inner)

    def sizeHint(self) -> QSize:
        wanted, room = self._inner.sizeHint(), room_of(self)
        bar = QSize(self.verticalScrollBar().sizeHint().width() if wanted.height() > room.height() else 0, 0)
        return (wanted + bar).boundedTo(room)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint().boundedTo(QSize(_LEAST_PX, _LEAST_PX))
