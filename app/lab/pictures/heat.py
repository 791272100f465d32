"""A matrix of values from 0 to 1 as shades of one colour."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter

from app.charts.legend import Legend
from app.charts.raster import cell_at, draw_cells
from app.lab.pictures import words
from app.lab.pictures.painter import Painter
from app.language import figure
from app.theme.theme import Theme
from engine.protocol.lab import Heat

SHADES = 64
LARGEST_PX = 24


class HeatPainter(Painter):
    """A lone large value among many small ones stays visible, however small the picture."""

    def __init__(self, theme: Theme, picture: Heat) -> None:
        super().__init__(theme)
        self._picture = picture
        columns = max(1, picture.columns)
        values = np.nan_to_num(np.array(picture.values, dtype=np.float64), nan=0.0).clip(0, 1)
        rows = -(-len(values) // columns)
        codes = np.zeros(rows * columns, dtype=np.uint8)
        codes[: len(values)] = 1 + np.round(values * (SHADES - 1))
        self._codes = codes.reshape(rows, columns)
        self._room = QRectF()

    def paint(self, painter: QPainter, room: QRectF) -> None:
        high = self.metrics.height()
        largest = self.theme.px(LARGEST_PX)
        rows, columns = self._codes.shape
        width, height = min(room.width() - high - 4, largest * columns), min(room.height() - high - 4, largest * rows)
        self._room = QRectF(room.left() + high + 4, room.top(), max(1.0, width), max(1.0, height))
        draw_cells(
            painter, self._room, self._codes, [self._shade(step / (SHADES - 1)) for step in range(SHADES)], gaps=False
        )
        middle = Qt.AlignmentFlag.AlignHCenter
        below = QRectF(self._room.left(), self._room.bottom() + 4, room.right() - self._room.left(), high)
        self.write(painter, below, words.across(self._picture), Qt.AlignmentFlag.AlignLeft)
        painter.save()
        painter.translate(room.left(), self._room.bottom())
        painter.rotate(-90)
        self.write(painter, QRectF(0, 0, self._room.height(), high), words.down(self._picture), middle)
        painter.restore()

    def under(self, at: QPointF) -> str:
        found = cell_at(self._room, *self._codes.shape, at.x(), at.y())
        return words.heat_cell(self._picture, *found) if found else ""

    def legend(self) -> list[Legend]:
        return [Legend(self._shade(share), text) for share, text in ((0.0, "0"), (0.5, figure(0.5, ".1f")), (1.0, "1"))]

    def _shade(self, share: float) -> str:
        return self.theme.tint("accent", share, "raised")
