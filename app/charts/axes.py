"""Drawing area of a chart: axes with a scale and three hairlines, curves over the last minute or bars, event marks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.language import tr
from app.theme.direction import TO_THE_RIGHT
from app.theme.theme import SECTION_PX, Theme

SPAN = 60.0
"""Seconds on the time axis."""
_TIMES = ((-SPAN, "-60 s"), (-SPAN / 2, "-30 s"), (0.0, tr("now")))
_GAP = 6
_LINE_PX = 1.5


class PlotAxes(QWidget):
    """x from ``left`` to ``right``, y from 0 to ``top``; hairlines with their values at 0, half of it and all of it.

    A lane above the highest line is left to event marks, the line below the lowest one to ``ticks`` (x, text).
    """

    def __init__(self, theme: Theme, left: float, right: float) -> None:
        super().__init__()
        self.theme = theme
        self.left, self.right, self.top = left, right, 1.0
        self.scale: Callable[[float], str] = "{:g}".format
        self.ticks: Sequence[tuple[float, str]] = ()
        self.heads, self.feet = 1.0, 1.0
        """Lines of text above the highest hairline and below the lowest one, of which the ticks take the first."""
        self.setMinimumHeight(20)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Expanding)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.recolour()

    def recolour(self) -> None:
        """Colours or sizes of the theme changed."""
        self.setFont(self.theme.ui_font(SECTION_PX - 1))
        self.update()

    @property
    def rules(self) -> list[float]:
        """The values of the hairlines, the lowest first."""
        return [self.top * share for share in (0, 0.5, 1)]

    @property
    def labels(self) -> list[str]:
        """Labels beside the hairlines."""
        return [self.scale(value) for value in self.rules]

    def room(self) -> QRectF:
        """Rectangle where data is drawn, in pixels."""
        metrics = self.fontMetrics()
        gutter = max(metrics.horizontalAdvance(label) for label in self.labels) + _GAP
        lane, foot = self.heads * metrics.height() + 2, self.feet * metrics.height()
        return QRectF(gutter, lane, max(1, self.width() - gutter - 1), max(1, self.height() - lane - foot))

    def place_x(self, room: QRectF, value: float) -> float:
        return room.left() + (value - self.left) / (self.right - self.left) * room.width()

    def place_y(self, room: QRectF, value: float) -> float:
        return room.bottom() - value / self.top * room.height()

    def draw(self, painter: QPainter, room: QRectF) -> None:
        """The data; clipped to nothing."""
        raise NotImplementedError

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, room = QPainter(self), self.room()
        painter.setLayoutDirection(TO_THE_RIGHT)
        try:
            self._draw_grid(painter, room)
            self.draw(painter, room)
        finally:
            painter.end()  # Qt crashes where an exception leaves it open

    def _draw_grid(self, painter: QPainter, room: QRectF) -> None:
        tokens, metrics = self.theme.tokens, self.fontMetrics()
        painter.setPen(QColor(tokens.line))
        heights = [round(self.place_y(room, value)) for value in self.rules]
        for height in heights:
            painter.drawLine(round(room.left()), height, round(room.right()), height)
        painter.setPen(QColor(tokens.mute))
        for height, label in zip(heights, self.labels, strict=True):
            area = QRectF(0, height - metrics.height() / 2, room.left() - _GAP, metrics.height())
            painter.drawText(area, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, label)
        for start, text in self.tick_places(room):
            painter.drawText(QPointF(start, room.bottom() + metrics.ascent()), text)

    def tick_places(self, room: QRectF) -> list[tuple[float, str]]:
        """Starts of the ticks' texts, in pixels: the last and the first, then those between that have room."""
        metrics, free, placed = self.fontMetrics(), [(room.left(), room.right())], []
        for at, text in (*self.ticks[-1:], *self.ticks[:1], *self.ticks[1:-1]):
            width = metrics.horizontalAdvance(text)
            start = min(max(room.left(), self.place_x(room, at) - width / 2), room.right() - width)
            gap = next((gap for gap in free if gap[0] <= start and start + width <= gap[1]), None)
            if gap is None or (start, text) in placed:
                continue
            free.remove(gap)
            free += [(gap[0], start - _GAP), (start + width + _GAP, gap[1])]
            placed.append((start, text))
        return sorted(placed)


class Curve:
    """A line, or an area from the floor up to it, in one colour of ``#rrggbb``, which its chart gives it."""

    def __init__(self, area: bool = True) -> None:
        self.area, self.color = area, ""
        self.x: NDArray[np.float64] = np.empty(0)
        self.y: NDArray[np.float64] = np.empty(0)

    def set(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> None:
        self.x, self.y = x, y


class TimePlot(PlotAxes):
    """Curves over the last minute, the first one lowest, and marks (age in seconds, label) of what happened."""

    def __init__(self, theme: Theme, curves: Sequence[Curve]) -> None:
        super().__init__(theme, -SPAN, 0.0)
        self.ticks = _TIMES
        self.curves = curves
        self.marks: Sequence[tuple[float, str]] = ()

    def draw(self, painter: QPainter, room: QRectF) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setClipRect(room.adjusted(0, -_LINE_PX, 1, _LINE_PX))
        for curve in self.curves:
            points = self._points(curve, room)
            if len(points) < 2:
                continue
            if curve.area:
                floor = [QPointF(points[-1].x(), room.bottom()), QPointF(points[0].x(), room.bottom())]
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(QColor(curve.color))
                painter.drawPolygon([*points, *floor])
            else:
                painter.setPen(QPen(QColor(curve.color), _LINE_PX))
                painter.drawPolyline(points)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        painter.setClipping(False)
        self._draw_marks(painter, room)

    def _points(self, curve: Curve, room: QRectF) -> list[QPointF]:
        """The corners of a curve, in pixels; an area that is flat on the floor has none."""
        if curve.area and not curve.y.any():
            return []
        x, y = corners(curve.x, curve.y)
        at = self.place_x(room, x), self.place_y(room, y)  # type: ignore[arg-type]
        return [QPointF(a, b) for a, b in zip(*(values.tolist() for values in at), strict=True)]  # type: ignore[attr-defined]

    def _draw_marks(self, painter: QPainter, room: QRectF) -> None:
        """Labels stand in the lane above the data, each by its line, where newer ones leave room."""
        metrics, mute = self.fontMetrics(), QColor(self.theme.tokens.mute)
        free = room.right()
        for age, label in reversed(self.marks):
            at, width = self.place_x(room, age), metrics.horizontalAdvance(label)
            start = min(max(room.left(), at - width / 2), free - width)
            painter.setPen(QPen(mute, 1, Qt.PenStyle.DashLine))
            painter.drawLine(QPointF(at, room.top()), QPointF(at, room.bottom()))
            if start >= max(room.left(), at - 1.5 * width):
                painter.setPen(mute)
                painter.drawText(QPointF(start, metrics.ascent()), label)
                free = start - _GAP


def corners(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """The points of a curve without those on the way between two of their own height."""
    kept = np.ones(len(y), dtype=bool)
    kept[1:-1] = (y[1:-1] != y[:-2]) | (y[1:-1] != y[2:])
    return x[kept], y[kept]


def bar_edges(bars: int, index: int, series: int) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Left and right edges on the axis of the bars at 1, 2, 3 … of one of several series side by side."""
    width = 0.72 / series
    centre = np.arange(1, bars + 1) + (index - (series - 1) / 2) * width
    return centre - 0.43 * width, centre + 0.43 * width


class Bars(NamedTuple):
    """Heights at 1, 2, 3 …, in a colour of ``#rrggbb``."""

    heights: list[float]
    color: str


class BarPlot(PlotAxes):
    """Groups of bars at 1, 2, 3 …, side by side where there are several."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, 0.5, 1.5)
        self.bars: list[Bars] = []

    def show_bars(self, bars: list[Bars], positions: int) -> None:
        """``positions`` says how far the axis goes; every other number is left out where they are many."""
        self.bars, self.right = bars, positions + 0.5
        every = 1 if positions <= 8 else 2
        self.ticks = [(number, str(number)) for number in range(every, positions + 1, every)]
        self.update()

    def draw(self, painter: QPainter, room: QRectF) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        for index, bars in enumerate(self.bars):
            painter.setBrush(QColor(bars.color))
            edges = bar_edges(len(bars.heights), index, len(self.bars))
            for left, right, height in zip(*edges, bars.heights, strict=True):
                start, top = self.place_x(room, left), self.place_y(room, height)
                painter.drawRect(QRectF(start, top, self.place_x(room, right) - start, room.bottom() - top))
