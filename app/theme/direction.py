"""Directions: of a text, by its letters, and of the window, whose sides are mirrored where the language runs leftwards.

Charts, code and numbers run to the right everywhere.
"""

from __future__ import annotations

import unicodedata

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QGuiApplication, QPainter
from PySide6.QtWidgets import QStyle

TO_THE_RIGHT = Qt.LayoutDirection.LeftToRight
_FORCE = Qt.TextFlag.TextForceLeftToRight | Qt.TextFlag.TextForceRightToLeft
_ACROSS = Qt.AlignmentFlag.AlignHorizontal_Mask | Qt.AlignmentFlag.AlignVertical_Mask


def mirrored() -> bool:
    """True if the window's sides are, as for Arabic and Hebrew."""
    return QGuiApplication.layoutDirection() is Qt.LayoutDirection.RightToLeft


def direction(text: str) -> Qt.LayoutDirection | None:
    """The direction of the text's first letter, else to the right for digits; None for a text without either."""
    digits = False
    for letter in text:
        kind = unicodedata.bidirectional(letter)
        if kind == "L":
            return Qt.LayoutDirection.LeftToRight
        if kind in ("R", "AL"):
            return Qt.LayoutDirection.RightToLeft
        digits = digits or kind in ("EN", "AN")
    return Qt.LayoutDirection.LeftToRight if digits else None


def flags(text: str, given: int, window: Qt.LayoutDirection) -> int:
    """Flags to draw a text with in its own direction, aligned by that of the ``window``."""
    own = direction(text)
    if own is None:
        return given
    align = QStyle.visualAlignment(window, Qt.AlignmentFlag(given & _ACROSS.value))
    force = (
        Qt.TextFlag.TextForceLeftToRight if own is Qt.LayoutDirection.LeftToRight else Qt.TextFlag.TextForceRightToLeft
    )
    return given & ~_ACROSS.value & ~_FORCE.value | align.value | force.value


def draw_text(painter: QPainter, rect: QRect, align: Qt.AlignmentFlag, text: str) -> None:
    """Draw one line in its own direction, aligned by that of the widget."""
    painter.drawText(rect, flags(text, align.value, painter.layoutDirection()), text)


def mirror(rect: QRect, room: int | QRect) -> QRect:
    """The place of what lies at ``rect`` if the window is not mirrored: in a ``room``, or one of so many pixels."""
    area = QRect(0, 0, room, 0) if isinstance(room, int) else room
    return rect.translated(area.left() + area.right() - rect.left() - rect.right(), 0) if mirrored() else rect


def fold_mark(opened: bool) -> str:
    """The arrow before what can be folded."""
    return "▾" if opened else "◂" if mirrored() else "▸"
