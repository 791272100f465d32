"""Rows of lists: rows as high as their words, and the ground of one that is chosen."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPen
from PySide6.QtWidgets import QStyledItemDelegate, QStyleOptionViewItem

from app.theme.theme import Theme

_PADDING_PX = 20
"""Left and right of a row's words together, as in the style sheet."""


class WrappedRows(QStyledItemDelegate):
    """Rows whose words wrap."""

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        """Size of a row: as high as its words, if they wrap within the padding, which Qt forgets."""
        inside = QStyleOptionViewItem(option)
        inside.rect.setWidth(inside.rect.width() - _PADDING_PX)
        return super().sizeHint(inside, index)


def draw_chosen(painter: QPainter, place: QRect, theme: Theme, share: float = 1.0) -> None:
    """Paint the ground of a row that is chosen, or of one under the mouse (a ``share`` of it). In high contrast, where
    that ground is faint, a chosen row has an edge as well."""
    edged = theme.edged and share == 1.0
    painter.setPen(QPen(theme.color("line"), 1) if edged else Qt.PenStyle.NoPen)
    painter.setBrush(theme.color("raised", share))
    painter.drawRoundedRect(QRectF(place).adjusted(0.5, 0.5, -0.5, -0.5) if edged else QRectF(place), 6, 6)
