"""Layout of the Lab's pages: as many columns as the width has room for, and the parts of pages."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QObject, QSize, QTimer
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QScrollArea, QVBoxLayout, QWidget

from app.theme.theme import Theme
from app.theme.widgets import caption, fill, named, take_out

SETTLE_MS = 1000
"""Milliseconds that a page with a new result may grow."""


class ColumnsLayout(QWidget):
    """``widgets`` in rows of up to ``most``, each at least ``least`` wide (pixels at the usual text size)."""

    def __init__(self, widgets: Sequence[QWidget], theme: Theme, least: int, most: int) -> None:
        super().__init__()
        self._theme, self._least = theme, least
        self.columns = 0
        self._grid = QGridLayout(self)
        fill(self._grid, margins=0, spacing=12)
        self.show_widgets(widgets, most)
        theme.changed.connect(self._place)

    def show_widgets(self, widgets: Sequence[QWidget], most: int) -> None:
        """These instead of the ones before, of which those that are not among them are deleted."""
        while (item := self._grid.takeAt(0)) is not None:
            if (before := item.widget()) is not None and before not in widgets:
                take_out(before)
        self._widgets, self._most = list(widgets), most
        self._place(anew=True)

    def minimumSizeHint(self) -> QSize:
        """One column is always possible."""
        return QSize(min(self._theme.px(self._least), 320), super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()

    def _place(self, *, anew: bool = False) -> None:
        gap, least = self._grid.spacing(), self._theme.px(self._least)
        columns = max(1, min(self._most, (self.width() + gap) // (least + gap)))
        if columns == self.columns and not anew:
            return
        for column in range(max(columns, self._grid.columnCount())):
            self._grid.setColumnStretch(column, int(column < columns))
        self.columns = columns
        # Columns that hold nothing have no gap before them: the others would be wider than in the grids around.
        self._grid.setContentsMargins(0, 0, max(0, columns - len(self._widgets)) * gap, 0)
        for at, widget in enumerate(self._widgets):
            self._grid.addWidget(widget, at // columns, at % columns)


class PageSection(QFrame):
    """A part of a page under its heading; with ``box`` in a box."""

    def __init__(self, heading: str = "", box: bool = False) -> None:
        super().__init__()
        if box:
            self.setProperty("card", "choice")
        self.column = QVBoxLayout(self)
        margin = 12 if box else 0
        fill(self.column, margins=margin, spacing=6)
        if heading:
            self.column.addWidget(label(heading, "section"))

    def add(self, *widgets: QWidget) -> PageSection:
        for widget in widgets:
            self.column.addWidget(widget)
        return self


class IntoView(QObject):
    """Keeps a widget of a scroll area on screen while the page around it grows, for :data:`SETTLE_MS`."""

    def __init__(self, area: QScrollArea) -> None:
        super().__init__(area)
        self._area = area
        self._widget: QWidget | None = None
        self._settled = QTimer(self, singleShot=True, interval=SETTLE_MS)
        self._settled.timeout.connect(self.end)
        area.verticalScrollBar().rangeChanged.connect(self._bring)

    @property
    def active(self) -> bool:
        return self._widget is not None

    def begin(self, widget: QWidget) -> None:
        self._widget = widget
        self._settled.start()

    def end(self) -> None:
        """It is where it should be, and stays there."""
        self._bring()
        self.let_go()

    def let_go(self) -> None:
        """The person goes elsewhere."""
        self._widget = None
        self._settled.stop()

    def _bring(self) -> None:
        if self._widget is not None:
            self._area.ensureWidgetVisible(self._widget)


def label(text: str, role: str = "", name: str = "") -> QLabel:
    """Words that wrap and can be copied."""
    return named(caption(text, name), role=role)
