"""Arrow keys inside the panel: up and down between rows, left and right between a row's name, button and control."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QAbstractSpinBox, QPushButton, QWidget

_KEYS = {Qt.Key.Key_Up: (-1, 0), Qt.Key.Key_Down: (1, 0), Qt.Key.Key_Left: (0, -1), Qt.Key.Key_Right: (0, 1)}
Stops = Sequence[QWidget]
"""Widgets of one row that can have the focus, left to right."""


class Arrows(QObject):
    """``rows`` gives the stops of the rows on show, top to bottom."""

    def __init__(self, rows: Callable[[], Sequence[Stops]], parent: QObject) -> None:
        super().__init__(parent)
        self._rows = rows

    def watch(self, stops: Stops) -> None:
        for stop in stops:
            stop.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is not QEvent.Type.KeyPress:
            return False
        assert isinstance(event, QKeyEvent)
        assert isinstance(watched, QWidget)
        step = _KEYS.get(Qt.Key(event.key()))
        if step is None or isinstance(watched, QAbstractSpinBox) or (_is_segment(watched) and step[1]):
            return False  # which use the key themselves
        return self._go(watched, *step)

    def _go(self, watched: QWidget, down: int, right: int) -> bool:
        rows = self._rows()
        for index, row in enumerate(rows):
            if watched not in row:
                continue
            column = list(row).index(watched)
            target = _at(rows[index], column + right) if right else _in_column(rows, index + down, down, column)
            if target is not None:
                target.setFocus(Qt.FocusReason.OtherFocusReason)
            return True
        return False


def _at(row: Stops, column: int) -> QWidget | None:
    return row[column] if 0 <= column < len(row) else None


def _in_column(rows: Sequence[Stops], index: int, down: int, column: int) -> QWidget | None:
    """The stop in that column of the next row that has any; its last one where it has fewer."""
    while 0 <= index < len(rows):
        if rows[index]:
            return rows[index][min(column, len(rows[index]) - 1)]
        index += down
    return None


def _is_segment(widget: QObject) -> bool:
    return isinstance(widget, QPushButton) and widget.property("kind") == "segment"
