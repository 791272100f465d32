"""Matrices of small numbers as images of cells, in the screen's own pixels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QColor, QImage, QPainter

GAP_FROM_PX = 4
"""Cells of so many pixels of the screen have a gap after them."""


def draw_cells(
    painter: QPainter, room: QRectF, codes: NDArray[np.uint8], colors: Sequence[str], gaps: bool = True
) -> None:
    """Draw uint8 [rows, columns] over all of ``room``: 0 is nothing, k the colour ``colors[k - 1]`` as ``#rrggbb``.

    Where cells are smaller than a pixel, the highest number among them is shown.
    """
    ratio = painter.device().devicePixelRatioF()
    width, height = round(room.width() * ratio), round(room.height() * ratio)
    if not codes.size or width < 1 or height < 1:
        return
    pixels = _stretched(_stretched(codes, height, 0, gaps), width, 1, gaps)
    pixels = np.ascontiguousarray(pixels)
    image = QImage(pixels.data, width, height, width, QImage.Format.Format_Indexed8)
    image.setColorTable([0, *(QColor(color).rgb() for color in colors)])
    image.setDevicePixelRatio(ratio)
    left, top = (round(edge * ratio) / ratio for edge in (room.left(), room.top()))
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)  # it is slow, and changes nothing here
    painter.drawImage(QPointF(left, top), image)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)


def _stretched(codes: NDArray[np.uint8], size: int, axis: int, gaps: bool) -> NDArray[np.uint8]:
    """The axis with ``size`` entries instead of those it has."""
    count = codes.shape[axis]
    if count > size:
        return np.maximum.reduceat(codes, np.arange(size) * count // size, axis=axis)
    edges = np.round(np.linspace(0, size, count + 1)).astype(int)
    found = np.repeat(codes, np.diff(edges), axis=axis)
    if gaps and size >= GAP_FROM_PX * count:
        found[(slice(None),) * axis + (edges[1:] - 1,)] = 0
    return found


def cell_at(room: QRectF, rows: int, columns: int, x: float, y: float) -> tuple[int, int] | None:
    """Row and column of the cell at a point of what was drawn into ``room``."""
    if not room.contains(x, y) or not rows or not columns:
        return None
    row = int((y - room.top()) / room.height() * rows)
    column = int((x - room.left()) / room.width() * columns)
    return min(row, rows - 1), min(column, columns - 1)
