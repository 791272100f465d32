"""The pages of one text in their order, bright as far as they were read; those that hold what is looked for framed."""

from __future__ import annotations

import math

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen

from app.charts.legend import Legend
from app.charts.raster import cell_at, draw_cells
from app.lab.pictures import words
from app.lab.pictures.painter import Painter
from app.theme.theme import Theme, mix
from engine.protocol.lab import Strip

SHADES = 16
NARROWEST_PX, WIDEST_PX, HIGHEST_PX = 6, 16, 32
LEAST_FRAME_PX = 6
USUAL_PX = 400
"""Usual width, about, with two sides next to each other."""


class StripPainter(Painter):
    def __init__(self, theme: Theme, picture: Strip) -> None:
        super().__init__(theme)
        self._picture = picture
        self._read = np.nan_to_num(np.array(picture.read, dtype=np.float64)).clip(0, 1)
        self._marked = [page for page in picture.marked if 0 <= page < len(self._read)]
        self._columns = self._rows = 0
        self._room = QRectF()

    @property
    def height(self) -> float:
        rows = math.ceil(len(self._read) * NARROWEST_PX / self.theme.px(USUAL_PX))
        return self.line + 6 + self.theme.px(HIGHEST_PX) * rows

    def paint(self, painter: QPainter, room: QRectF) -> None:
        pages, room = len(self._read), room.adjusted(1, 1, -1, -1)
        most = max(1, int(room.width() // NARROWEST_PX))
        self._rows = math.ceil(pages / most)
        self._columns = math.ceil(pages / max(1, self._rows))
        wide = min(self.theme.px(WIDEST_PX), room.width() / max(1, self._columns))
        high = min(self.theme.px(HIGHEST_PX), (room.height() - self.foot) / max(1, self._rows))
        self._room = QRectF(room.left(), room.top(), wide * self._columns, high * self._rows)
        codes = np.zeros(self._rows * self._columns, dtype=np.uint8)
        # Whatever was read at all is brighter than what was not.
        codes[:pages] = 1 + np.ceil(self._read * SHADES)
        draw_cells(
            painter, self._room, codes.reshape(self._rows, -1), [self._shade(k / SHADES) for k in range(SHADES + 1)]
        )
        self.write_foot(painter, room, self._room, words.strip_foot(pages))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(self.theme.color("warn"), 2))
        for page in self._marked:
            row, column = divmod(page, self._columns)
            frame = QRectF(self._room.left() + column * wide, self._room.top() + row * high, wide - 1, high - 1)
            wider, higher = (max(0.0, LEAST_FRAME_PX - side) / 2 for side in (frame.width(), frame.height()))
            painter.drawRect(frame.adjusted(-wider, -higher, wider, higher))

    def under(self, at: QPointF) -> str:
        found = cell_at(self._room, self._rows, self._columns, at.x(), at.y())
        page = found[0] * self._columns + found[1] if found else -1
        return words.strip_page(self._picture, page) if 0 <= page < len(self._read) else ""

    def legend(self) -> list[Legend]:
        found = [Legend(self._shade(1), words.READ), Legend(self._shade(0), words.NOT_READ)]
        return [*found, Legend("warn", words.MARKED, "□")] if self._marked else found

    def _shade(self, share: float) -> str:
        """Mix the colour of keys and values in use at this share."""
        return mix(self.theme.tokens.teal, self.theme.tint("mute", 0.22, "panel"), share)
