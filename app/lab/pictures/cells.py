"""Step by step, which tokens were computed: a triangle where none is kept, one cell a row where all are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter

from app.charts.legend import Legend
from app.charts.raster import cell_at, draw_cells
from app.lab.pictures import words
from app.lab.pictures.painter import Painter
from app.theme.theme import Theme
from engine.protocol.lab import Cells

LARGEST_PX = 16
MOST = 1024
"""Rows and columns that are told apart; of more, several become one."""
_KEPT, _COMPUTED = 1, 2


class CellsPainter(Painter):
    """A row a step, a cell a token; the tokens computed in a step are its last."""

    def __init__(self, theme: Theme, picture: Cells) -> None:
        super().__init__(theme)
        self._steps = list(zip(picture.computed, picture.present, strict=False))
        self.moments = len(self._steps)
        self._columns = max((present for _, present in self._steps), default=0)
        self._codes = _matrix(self._steps, self._columns)
        self._room = QRectF()

    def paint(self, painter: QPainter, room: QRectF) -> None:
        largest, rows = self.theme.px(LARGEST_PX), len(self._steps)
        height = min(room.height() - self.foot, largest * rows)
        self._room = QRectF(room.left(), room.top(), min(room.width(), largest * self._columns), height)
        codes = self._codes.copy()
        codes[-(-len(codes) * self.at // rows) :] = 0
        draw_cells(painter, self._room, codes, [self._kept, self.theme.tokens.accent])
        self.write_foot(painter, room, self._room, words.cells_foot(self._columns, rows))

    def under(self, at: QPointF) -> str:
        found = cell_at(self._room, len(self._steps), self._columns, at.x(), at.y())
        past = found is not None and found[0] < self.at
        return words.cells_step(found[0], *self._steps[found[0]]) if found and past else ""

    def legend(self) -> list[Legend]:
        return [Legend("accent", words.COMPUTED), Legend(self._kept, words.KEPT)]

    @property
    def _kept(self) -> str:
        return self.theme.shade("teal", 0.4)


def _matrix(steps: list[tuple[int, int]], columns: int) -> NDArray[np.uint8]:
    """uint8 [rows, columns], at most :data:`MOST` each way."""
    shown = np.array(steps[:: max(1, -(-len(steps) // MOST))], dtype=np.int64).reshape(-1, 2)
    share = max(1, -(-columns // MOST))
    column = np.arange(-(-columns // share)) * share
    computed, present = shown[:, :1], shown[:, 1:]
    there = column < present
    return np.where(there & (column + share > present - computed), _COMPUTED, np.where(there, _KEPT, 0)).astype(
        np.uint8
    )
