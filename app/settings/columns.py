"""Sections next to each other where the window is wide, and below each other where it is not."""

from __future__ import annotations

from itertools import pairwise

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.theme.theme import Theme
from app.theme.widgets import fill

COLUMN_PX = 640
"""The most that a column is wide at the usual text size."""
TWO_PX = 980
"""The least width with two columns."""
GAP_PX = 48


class SettingColumns(QWidget):
    """``left`` and ``right`` hold parts from top to bottom; in one column the right ones come after the left ones."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.two = False
        """True if there are two columns."""
        self._left: list[QWidget] = []
        self._right: list[QWidget] = []
        self._first, self._second = fill(QVBoxLayout(), spacing=0), fill(QVBoxLayout(), spacing=0)
        self._row = fill(QHBoxLayout(self), (self._first, 1), (self._second, 0), margins=0, spacing=0)
        for column in (self._first, self._second):
            column.setAlignment(Qt.AlignmentFlag.AlignTop)
        theme.changed.connect(self._choose)

    def add(self, part: QWidget, right: bool = False) -> None:
        (self._right if right else self._left).append(part)
        self._arrange()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._choose()

    def _choose(self) -> None:
        two = self.width() >= self._theme.px(TWO_PX)
        if two != self.two:
            self.two = two
            self._arrange()
            self._order()

    def _arrange(self) -> None:
        for part in (*self._left, *self._right):
            self._first.removeWidget(part)
            self._second.removeWidget(part)
        for column, parts in (
            (self._first, self._left if self.two else [*self._left, *self._right]),
            (self._second, self._right if self.two else []),
        ):
            fill(column, *parts)
        self._row.setSpacing(GAP_PX if self.two else 0)
        self._row.setStretch(1, 1 if self.two else 0)

    def _order(self) -> None:
        """Tab goes through the first column, then through the second."""
        parts = [inner for part in (*self._left, *self._right) for inner in part.findChildren(QWidget)]
        for before, after in pairwise([part for part in parts if part.focusPolicy() & Qt.FocusPolicy.TabFocus]):
            QWidget.setTabOrder(before, after)
