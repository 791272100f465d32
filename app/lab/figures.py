"""A figure of a result: the median of each side, the gain with its range, and the single runs as dots."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QGridLayout, QSizePolicy, QWidget

from app.lab import words
from app.lab.layout import Columns, Part, label
from app.theme.theme import SECTION_PX, Theme
from engine.protocol import Metric
from engine.protocol.lab import LabFigure

SIDES = ("mute", "accent", "teal", "violet")
"""The colours of the sides, the one without the technique first."""
_ROW, _DOT, _WIDTH, _LETTER_PX = 13, 6, 190, 10
_COLUMN_PX, _TABLE_PX = 148, 360


class Dots(QWidget):
    """The single runs of each side on one axis, a row a side, with a stroke at the median."""

    def __init__(self, runs: Sequence[Sequence[float]], medians: Sequence[float], metric: Metric, theme: Theme) -> None:
        super().__init__()
        self._runs, self._medians, self._metric, self._theme = runs, medians, metric, theme
        values = [value for side in runs for value in side] or [0.0]
        low, high = min(values), max(values)
        self._low = 0.0 if low <= high / 2 else low - 0.1 * (high - low)
        self._high = high if high > self._low else self._low + 1.0
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        told = "; ".join(", ".join(words.value(value, metric) for value in side) for side in runs)
        self.setAccessibleName(f"{words.title(metric)}: single runs")
        self.setAccessibleDescription(told)
        theme.changed.connect(self.updateGeometry)

    def sizeHint(self) -> QSize:
        px = self._theme.px
        return QSize(px(_WIDTH), px(_ROW) * len(self._runs) + px(SECTION_PX + 6))

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        theme, painter = self._theme, QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        row, dot = theme.px(_ROW), theme.px(_DOT)
        left = theme.px(_LETTER_PX) + dot
        across = self.width() - left - dot
        axis = row * len(self._runs) + 0.5
        painter.setFont(theme.ui_font(SECTION_PX))
        painter.setPen(QPen(theme.color("line"), 1))
        painter.drawLine(QPointF(left, axis), QPointF(left + across, axis))
        for side, (runs, median) in enumerate(zip(self._runs, self._medians, strict=False)):
            token = SIDES[side % len(SIDES)]
            middle = row * (side + 0.5)
            painter.setPen(QPen(theme.color(token), 2))
            letter = QRectF(0, row * side, left, row)
            painter.drawText(letter, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, words.LETTERS[side])
            x = left + across * self._share(median)
            painter.drawLine(QPointF(x, middle - row / 2 + 1), QPointF(x, middle + row / 2 - 1))
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.color(token, 0.6))
            for value in runs:
                painter.drawEllipse(QPointF(left + across * self._share(value), middle), dot / 2, dot / 2)
        painter.setPen(theme.color("mute"))
        below = QRectF(left - dot, axis, across + 2 * dot, self.height() - axis)
        for align, end in ((Qt.AlignmentFlag.AlignLeft, self._low), (Qt.AlignmentFlag.AlignRight, self._high)):
            painter.drawText(below, align | Qt.AlignmentFlag.AlignBottom, words.value(end, self._metric))

    def _share(self, value: float) -> float:
        return (value - self._low) / (self._high - self._low)


def figure_row(figure: LabFigure, sides: Sequence[str], theme: Theme) -> Part:
    """One figure of a result that has effects: two sides next to each other, more of them below each other."""
    metric = figure.effects[0].metric
    medians = [figure.effects[0].before, *(effect.after for effect in figure.effects)]
    names = [label(words.lettered(at, side), "caption") for at, side in enumerate(sides)]
    values = [label(words.value(median, metric), "figure") for median in medians]
    gains = [label(said.text, said.tone) for said in map(words.verdict, figure.effects)]
    dots = Dots(figure.runs, medians, metric, theme)
    row = Part().add(label(words.title(metric), "small-figure"))
    row.column.setSpacing(4)
    if len(sides) == 2:
        each = [Part().add(*of_side) for of_side in zip(names, values, strict=False)]
        each += [Part().add(label(words.AGAINST, "caption"), *gains), Part().add(dots)]
        for part in each:
            part.column.setSpacing(0)
            part.column.addStretch(1)
        return row.add(Columns(each, theme, _COLUMN_PX, len(each)))
    table = QWidget()
    grid = QGridLayout(table)
    grid.setContentsMargins(0, 0, 0, 0)
    grid.setVerticalSpacing(4)
    for column, (cells, share) in enumerate(
        ((names, 3), (values, 2), ([label(words.AGAINST_A, "caption"), *gains], 4))
    ):
        grid.setColumnStretch(column, share)
        for at, cell in enumerate(cells):
            grid.addWidget(cell, at, column)
    runs = Part().add(dots)
    runs.column.addStretch(1)
    return row.add(Columns([table, runs], theme, _TABLE_PX, 2))
