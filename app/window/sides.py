"""The list of chats and the optimisations at the chat's sides: columns next to it, or over it where room is short.

In a mirrored window the left side is at the right.
"""

from __future__ import annotations

from PySide6.QtCore import QRect, Signal
from PySide6.QtGui import QMouseEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QWidget

from app.theme.direction import mirror
from app.theme.theme import Theme
from app.theme.widgets import fill, named

SIDEBAR_WIDTH = 232
PANEL_WIDTH = 400
OVERLAID = 1100
"""Below this width, pixels at the usual text size, the sides lie over the chat, and only one of them at a time."""
LEAST_CHAT = 48
"""Pixels of the chat that an overlay leaves free, where a click closes it."""


class _Rest(QWidget):
    """The part of the chat that an overlay leaves free: a click there closes the overlay."""

    pressed = Signal()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.pressed.emit()


class Sides(QWidget):
    """``middle`` between ``left`` and ``right``. ``shown`` (left, right) tells what a change of the width made of both.

    A wide window's sides come back as they were when it gets wide again; over the chat they begin hidden.
    """

    shown = Signal(bool, bool)

    def __init__(self, left: QWidget, middle: QWidget, right: QWidget, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._over = False
        self._right_on, self._held = True, False
        """Whether the right side was asked for, and whether it is hidden nevertheless."""
        self._wide = (True, True)
        """Visibility of the left and the right side in a wide window."""
        self.left, self.right = _edged(left, "right"), _edged(right, "left")
        self._row = fill(QHBoxLayout(self), self.left, (middle, 1), self.right, margins=0, spacing=0)
        self._rest = _Rest(self)
        self._rest.hide()
        self._rest.pressed.connect(self.close_overlay)
        theme.changed.connect(self._on_theme)

    @property
    def over(self) -> bool:
        """True if the sides lie over the chat."""
        return self._over

    def begin_with(self, left: bool, right: bool) -> None:
        """Set the sides that a wide window shows to begin with."""
        self._wide = (left, right)
        self._right_on = right
        self.left.setVisible(left)
        self.right.setVisible(right and not self._held)

    def hold_right(self, held: bool) -> None:
        """Hide the right side whatever is asked of it, or let it be as it was asked to be."""
        self._held = held
        self._show(self.left.isVisibleTo(self), self._right_on)

    def show_left(self, on: bool) -> None:
        self._show(on, self._right_on and not (self._over and on))

    def show_right(self, on: bool) -> None:
        self._show(self.left.isVisibleTo(self) and not (self._over and on), on)

    def close_overlay(self) -> bool:
        """Hide what lies over the chat; whether anything did."""
        if not self._over or self._rest.isHidden():
            return False
        self._show(False, False)
        return True

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._choose()

    def _on_theme(self) -> None:
        if self.isVisible():
            self._choose()

    def _choose(self) -> None:
        over = self.width() < self._theme.px(OVERLAID)
        if over != self._over:
            self._over = over
            self._move_sides()
            self._show(*((False, False) if over else self._wide))
        self._fit()

    def _move_sides(self) -> None:
        """Put the sides into the row, or take them out of it and lay them above it."""
        for index, side in ((0, self.left), (2, self.right)):
            if self._over:
                self._row.removeWidget(side)
                side.raise_()
            else:
                self._row.insertWidget(index, side)

    def _show(self, left: bool, right: bool) -> None:
        before = (self.left.isVisibleTo(self), self._right_on)
        self._right_on = right
        self.left.setVisible(left)
        self.right.setVisible(right and not self._held)
        self._rest.setVisible(self._over and (left or self.right.isVisibleTo(self)))
        if not self._over:
            self._wide = (left, right)
        self._fit()
        if before != (left, right):
            self.shown.emit(left, right)

    def _fit(self) -> None:
        width, most = self.width(), self.width() - LEAST_CHAT
        self.left.setFixedWidth(min(self._theme.px(SIDEBAR_WIDTH), most))
        self.right.setFixedWidth(min(self._theme.px(PANEL_WIDTH), most))
        if self._over:
            self.left.setGeometry(mirror(QRect(0, 0, self.left.width(), self.height()), width))
            right = QRect(width - self.right.width(), 0, self.right.width(), self.height())
            self.right.setGeometry(mirror(right, width))
            from_left = self.left.width() if self.left.isVisibleTo(self) else 0
            to_right = self.right.width() if self.right.isVisibleTo(self) else 0
            rest = QRect(from_left, 0, width - from_left - to_right, self.height())
            self._rest.setGeometry(mirror(rest, width))
            for part in (self._rest, self.left, self.right):
                part.raise_()


def _edged(inner: QWidget, side: str) -> QFrame:
    """``inner`` in a column of its own with a hairline towards the middle."""
    frame = named(QFrame(), edge=side, surface="panel")
    fill(QHBoxLayout(frame), inner, margins=0)
    return frame
