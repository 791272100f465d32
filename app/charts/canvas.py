"""The page map as an image of 8-bit palette indices, of which only changed cells are drawn again."""

from __future__ import annotations

import math

import numpy as np
from PySide6.QtCore import QRect
from PySide6.QtGui import QImage

from app.charts import tiles
from app.charts.hues import NO_OWNER, ChatHues
from app.charts.page_states import FILLS, RESERVED, SWAPPED, PageStates
from app.theme.theme import Theme
from engine.protocol import PAGE_STATES

LARGEST, SMALLEST = 14, 3
"""Sides of a cell in pixels, its gap included."""
FEW = 0.25
"""Up to this share of cells they are drawn one by one; beyond, the whole image anew."""
_RISING = ("free", "evicted", "cached", "quantised", "private", "locked", "shared")
_RANK = np.zeros(RESERVED + FILLS, dtype=np.uint8)
_RANK[: len(PAGE_STATES)] = [_RISING.index(state) for state in PAGE_STATES]
_RANK[RESERVED:] = range(1, FILLS + 1)
"""The rank of each state: of several pages that share a cell the highest is shown."""


class Canvas:
    """Cells in rows from the top left; pages in host memory follow on a row of their own.

    ``cell`` and ``image`` are in pixels of the screen, of which ``ratio`` make one of the widget's; all else that is
    asked for and answered is in the widget's. ``together`` pages share a cell where the canvas may not grow and a cell
    each would be too small.
    """

    def __init__(self, theme: Theme, hues: ChatHues, largest: int = LARGEST) -> None:
        self._theme, self._hues, self._largest = theme, hues, largest
        self._palette = tiles.palette(theme)
        self._pages: PageStates | None = None
        self._codes = np.empty(0, dtype=np.uint8)
        self._pixels = np.empty((0, 0), dtype=np.uint8)
        self._tiles = tiles.tiles(SMALLEST)
        self.cell, self.columns, self.rows, self.together = SMALLEST, 1, 0, 1
        self.ratio = 1.0
        self.image = QImage()

    @property
    def pages(self) -> PageStates | None:
        return self._pages

    @property
    def height(self) -> int:
        return math.ceil(self.rows * self.cell / self.ratio)

    def show(self, pages: PageStates, width: int, height: int, grows: bool, ratio: float = 1.0) -> bool:
        """Draw ``pages`` into ``width`` x ``height`` pixels, or higher if it ``grows``; True if the cells moved."""
        self._pages, self.ratio = pages, ratio
        moved = self._lay_out(int(width * ratio), int(height * ratio), grows)
        codes = self._wanted(pages)
        changed = np.flatnonzero(codes != self._codes) if len(codes) == len(self._codes) and not moved else None
        if changed is None or len(changed) > FEW * len(codes):
            self._draw_all(codes)
        elif len(changed):
            cells = self._pixels.reshape(self.rows, self.cell, self.columns, self.cell)
            cells[changed // self.columns, :, changed % self.columns, :] = self._tiles[codes[changed]]
        self._codes = codes
        if changed is None or len(changed):
            self._wrap()
        return moved

    def recolour(self) -> None:
        """The theme changed: other colours for the same indices."""
        self._palette = tiles.palette(self._theme)
        self._wrap()

    def page_at(self, x: int, y: int) -> int | None:
        """The page whose cell is there; None between them, after the last, and among those in host memory."""
        column, row = int(x * self.ratio) // self.cell, int(y * self.ratio) // self.cell
        if self._pages is None or not 0 <= column < self.columns or not 0 <= row < self.rows:
            return None
        page = (row * self.columns + column) * self.together
        return page if page < self._pages.total else None

    def place(self, page: int) -> QRect:
        """Rectangle of the page's cell, without its gap."""
        row, column = divmod(page // self.together, self.columns)
        left, top, side = (round(each * self.cell / self.ratio) for each in (column, row, 1))
        return QRect(left, top, side - 1, side - 1)

    def _lay_out(self, width: int, height: int, grows: bool) -> bool:
        assert self._pages is not None
        before = (self.cell, self.columns, self.rows, self.together)
        total, swapped = self._pages.total, self._pages.swapped
        self.together = 1
        largest, smallest = round(self._largest * self.ratio), round(SMALLEST * self.ratio)
        while True:
            for cell in range(largest, smallest - 1, -1):
                columns = max(1, width // cell)
                rows = -(-total // (self.together * columns)) - (-swapped // (self.together * columns))
                if rows * cell <= height:
                    break
            if grows or rows * cell <= height or self.together >= max(1, total + swapped):
                break
            self.together *= 2
        self.cell, self.columns, self.rows = cell, columns, rows
        moved = before != (cell, columns, rows, self.together)
        if before[0] != cell:
            self._tiles = tiles.tiles(cell)
        return moved

    def _wanted(self, pages: PageStates) -> np.ndarray:
        """The code of every cell of the grid."""
        states, hues = pages.states, pages.hues(self._hues)
        if self.together > 1:
            states, hues = self._gathered(states, hues)
        codes = np.full(self.rows * self.columns, tiles.BLANK, dtype=np.uint8)
        codes[: len(states)] = tiles.code(states, hues)
        swapped = -(-pages.swapped // self.together)
        start = -(-len(states) // self.columns) * self.columns
        codes[start : start + swapped] = tiles.code(SWAPPED, NO_OWNER)
        return codes

    def _gathered(self, states: np.ndarray, hues: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The page that matters most of every ``together`` pages."""
        pad = -len(states) % self.together
        ranked = np.pad(_RANK[states], (0, pad)).reshape(-1, self.together)
        best = np.arange(len(ranked)) * self.together + ranked.argmax(axis=1)
        best = np.minimum(best, len(states) - 1)
        return states[best], hues[best]

    def _draw_all(self, codes: np.ndarray) -> None:
        grid = self._tiles[codes].reshape(self.rows, self.columns, self.cell, self.cell)
        pixels = grid.transpose(0, 2, 1, 3).reshape(self.rows * self.cell, self.columns * self.cell)
        self._pixels = np.ascontiguousarray(pixels)

    def _wrap(self) -> None:
        """An image over the same memory. A new one each time, as Qt may keep what it made of an earlier one."""
        height, width = self._pixels.shape
        if not height or not width:
            self.image = QImage()
            return
        self.image = QImage(self._pixels.data, width, height, width, QImage.Format.Format_Indexed8)
        self.image.setColorTable(self._palette)
        self.image.setDevicePixelRatio(self.ratio)
