"""A figure of a result: the median of each side, the gain with its range, and the single runs as dots."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QGridLayout, QSizePolicy, QWidget

from app.lab import words
from app.lab.layout import ColumnsLayout, PageSection, label
from app.lab.pictures.plot import colors
from app.language import tr
from app.theme.direction import TO_THE_RIGHT
from app.theme.theme import SECTION_PX, Theme
from app.theme.widgets import fill, named, tip
from engine.protocol import Metric
from engine.protocol.lab import LabFigure

_ROW, _DOT, _WIDTH, _NARROW, _LETTER_PX = 13, 6, 190, 96, 10
_COLUMN_PX, _TABLE_PX = 148, 360
MUCH = 0.8
"""All values are nearly as large where the lowest is more than this share of the highest."""
NARROWEST = 0.05
"""The least width of an axis, as a share of the highest value on it."""


class Dots(QWidget):
    """The single runs of each side on one axis, a row a side, with a stroke at the median.

    ``ends`` of the axis are those given, and are then not written below it, nor the sides' letters before it; ``first``
    is the place of the first side, which gives it its colour. ``told`` writes a value with its unit.
    """

    def __init__(
        self,
        runs: Sequence[Sequence[float]],
        medians: Sequence[float],
        metric: Metric,
        theme: Theme,
        ends: tuple[float, float] | None = None,
        first: int = 0,
        told: Callable[[float, Metric], str] = words.value,
    ) -> None:
        super().__init__()
        self.setLayoutDirection(TO_THE_RIGHT)
        self.runs, self._medians, self._metric, self._theme, self._first = runs, medians, metric, theme, first
        self._named, self._told = ends is None, told
        self._low, self._high = ends or _ends([value for side in runs for value in side] or [0.0], metric.unit)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        every = "; ".join(", ".join(told(value, metric) for value in side) for side in runs)
        self.setAccessibleName(tr("{figure}: single runs", figure=words.title(metric)))
        named(self, tooltip=tip(tr("Single runs: {runs}", runs=every)), accessibleDescription=every)
        theme.changed.connect(self.updateGeometry)

    def sizeHint(self) -> QSize:
        px = self._theme.px
        wide = _WIDTH if self._named else _NARROW
        return QSize(px(wide), px(_ROW) * len(self.runs) + (px(SECTION_PX + 6) if self._named else 1))

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def at(self, value: float) -> float:
        """Position of a value, pixels from the left."""
        left, right = self._across()
        return left + (right - left) * (
            (value - self._low) / (self._high - self._low) if self._high > self._low else 0.5
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        theme, painter, of_sides = self._theme, QPainter(self), colors(self._theme)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setLayoutDirection(TO_THE_RIGHT)
        row, dot = theme.px(_ROW), theme.px(_DOT)
        left, right = self._across()
        axis = row * len(self.runs) + 0.5
        painter.setFont(theme.ui_font(SECTION_PX))
        painter.setPen(QPen(theme.color("line"), 1))
        painter.drawLine(QPointF(left, axis), QPointF(right, axis))
        for side, (runs, median) in enumerate(zip(self.runs, self._medians, strict=True)):
            color = QColor(of_sides[(self._first + side) % len(of_sides)])
            middle = row * (side + 0.5)
            painter.setPen(QPen(color, 2))
            if self._named:
                letter = QRectF(0, row * side, left, row)
                where = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
                painter.drawText(letter, where, words.LETTERS[side])
            x = self.at(median)
            painter.drawLine(QPointF(x, middle - row / 2 + 1), QPointF(x, middle + row / 2 - 1))
            painter.setPen(Qt.PenStyle.NoPen)
            color.setAlphaF(0.6)
            painter.setBrush(color)
            for value in runs:
                painter.drawEllipse(QPointF(self.at(value), middle), dot / 2, dot / 2)
        if self._named:
            painter.setPen(theme.color("mute"))
            below = QRectF(left - dot, axis, right - left + 2 * dot, self.height() - axis)
            for align, end in ((Qt.AlignmentFlag.AlignLeft, self._low), (Qt.AlignmentFlag.AlignRight, self._high)):
                painter.drawText(below, align | Qt.AlignmentFlag.AlignBottom, self._told(end, self._metric))

    def _across(self) -> tuple[float, float]:
        """From where to where the axis goes, in pixels."""
        dot = self._theme.px(_DOT)
        return dot + (self._theme.px(_LETTER_PX) if self._named else 0), self.width() - dot


def _ends(values: Sequence[float], unit: str) -> tuple[float, float]:
    """Ends of an axis for these: from zero, so that lengths are to one another as the values, unless all are nearly as
    large; then so wide that what is nearly the same stands close together. Shares are of a hundred."""
    low, high = min(values), max(values)
    if unit == "%":
        return 0.0, max(100.0, high)
    if low > MUCH * high:
        wide, middle = max(1.1 * (high - low), NARROWEST * high), (low + high) / 2
        return middle - wide / 2, middle + wide / 2
    return 0.0, max(high, 0.0) or 1.0


def figure_row(figure: LabFigure, sides: Sequence[str], theme: Theme) -> PageSection:
    """One figure of a result that has effects: two sides next to each other, more of them below each other."""
    metric = figure.effects[0].metric
    medians = figure.medians
    names = [label(words.lettered(at, side), "caption") for at, side in enumerate(sides)]
    values = [label(words.value(median, metric), "figure") for median in medians]
    gains = [label(said.text, said.tone) for said in map(words.verdict, figure.effects)]
    dots = Dots(figure.runs, medians, metric, theme)
    row = PageSection().add(label(words.named(metric), "small-figure"))
    row.column.setSpacing(4)
    if len(sides) == 2:
        each = [PageSection().add(*of_side) for of_side in zip(names, values, strict=False)]
        each += [PageSection().add(label(words.AGAINST, "caption"), *gains), PageSection().add(dots)]
        for part in each:
            fill(part.column, 1, spacing=0)
        return row.add(ColumnsLayout(each, theme, _COLUMN_PX, len(each)))
    table = QWidget()
    grid = fill(QGridLayout(table), margins=0, spacing=(12, 4))
    for value in values:
        value.setWordWrap(False)
    for column, (cells, share) in enumerate(
        ((names, 3), (values, 2), ([label(words.AGAINST_A, "caption"), *gains], 4))
    ):
        grid.setColumnStretch(column, share)
        for at, cell in enumerate(cells):
            grid.addWidget(cell, at, column)
    runs = PageSection().add(dots)
    runs.column.addStretch(1)
    return row.add(ColumnsLayout([table, runs], theme, _TABLE_PX, 2))
