"""A plot of the Lab: lines with their intervals, or grouped bars, on axes with units, above a legend and a note."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QHelpEvent, QPainter, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QVBoxLayout, QWidget

from app.charts.axes import PlotAxes, bar_edges
from app.charts.legend import Legend, LegendLabel
from app.charts.scale import Scale, fitting
from app.lab.pictures import words
from app.lab.pictures.words import LETTERS
from app.language import known, tr
from app.theme.direction import TO_THE_RIGHT
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, caption, fill, say, tip
from engine.protocol.lab import Axis, Plot, Series

LINE_PX = 1.75
DOT_PX = 2.5
MOST_DOTS = 40
"""Points of a plot with a line of more are not marked one by one."""
NEAR_PX = 24
ACROSS = 6
"""Steps between values below a plot, at most."""
BAND = 0.2
_DASHES = (Qt.PenStyle.SolidLine, Qt.PenStyle.DashLine, Qt.PenStyle.DotLine)
_MARKS = ("━", "╍", "┅")
_EMPTY = Plot(title="", x=Axis(title=""), y=Axis(title=""), series=[])


class Style(NamedTuple):
    """Style of one series. ``dash``: an index of the dashes that tell lines apart beside their colours."""

    color: str
    dash: int


class Spot(NamedTuple):
    """Area where a point or bar was drawn, and its place in its series."""

    area: QRectF
    series: Series
    place: int


def colors(theme: Theme) -> list[str]:
    """Colours of sides, ``#rrggbb``: grey for the first one, which the others are compared with."""
    tokens = theme.tokens
    return [tokens.mute, tokens.accent, tokens.violet, tokens.teal, *theme.chat_hues[1:3]]


def styles(theme: Theme, plot: Plot, sides: Sequence[str] = ()) -> list[Style]:
    """A series that is one of the ``sides`` has its colour; else they are as sides in their order, a lone one blue."""
    named = [sides.index(series.name) if series.name in sides else -1 for series in plot.series]
    lone = len(plot.series) == 1
    places = range(int(lone), len(plot.series) + lone) if -1 in named else named
    every = colors(theme)
    return [Style(every[place % len(every)], max(0, place - 1) // 2 % len(_DASHES)) for place in places]


class PlotView(QWidget):
    def __init__(self, theme: Theme, parent: QWidget | None = None, sides: Sequence[str] = ()) -> None:
        """``sides`` of the experiment, whose colours its series have."""
        super().__init__(parent)
        self.setLayoutDirection(TO_THE_RIGHT)
        self._theme, self._sides = theme, list(sides)
        self._plot = _EMPTY
        self._title = ElidedLabel("", "caption")
        self._axes = LabAxes(theme)
        self._legend = LegendLabel(theme)
        self._note = caption()
        fill(QVBoxLayout(self), self._title, (self._axes, 1), self._legend, self._note, margins=0, spacing=4)
        theme.changed.connect(self._show)
        self._show()

    def show_plot(self, plot: Plot) -> None:
        """Points that are not numbers are left out, and those that a logarithmic axis has no place for."""
        if plot != self._plot:
            self._plot = plot
            self._show()

    def _show(self) -> None:
        plot = self._plot
        self._title.setText(known(plot.title))
        of_series = styles(self._theme, plot, self._sides)
        self._axes.show_plot(plot, of_series, LETTERS if plot.categories == self._sides else ())
        named = [
            Legend(style.color, known(series.name), "■" if plot.bars else _MARKS[style.dash])
            for series, style in zip(plot.series, of_series, strict=True)
            if series.name
        ]
        self._legend.show_entries(named)
        self._legend.setVisible(bool(named))
        say(self._note, known(plot.note))
        self.setAccessibleName(known(plot.title) or tr("Plot"))
        self.setAccessibleDescription(words.plot(plot))


class LabAxes(PlotAxes):
    """The axes of any plot; the names of both stand above and below, and each point says its number under the mouse."""

    def __init__(self, theme: Theme) -> None:
        self._plot, self._across, self._up = _EMPTY, Scale(0.0, 1.0), Scale(0.0, 1.0)
        self._styles: Sequence[Style] = ()
        self._short: Sequence[str] = ()
        super().__init__(theme, 0.0, 1.0)
        self.heads, self.feet = 1.7, 2.4
        self.scale = lambda value: words.value(self._plot.y, value)
        self._spots: list[Spot] = []
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents, False)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Expanding)

    def sizeHint(self) -> QSize:
        return QSize(self.theme.px(320), self.theme.px(180))

    def minimumSizeHint(self) -> QSize:
        return QSize(self.theme.px(160), self.theme.px(90))

    def show_plot(self, plot: Plot, styles: Sequence[Style] = (), short: Sequence[str] = ()) -> None:
        """``styles`` of its series; ``short`` names of its categories, where those are sides, for want of room."""
        self._plot, self._styles, self._short = plot, styles, short
        points = [point for series in plot.series for point in series.points]
        ends = [
            end
            for series in plot.series
            for at in range(len(series.points))
            for end in words.interval(series, at) or ()
        ]
        self._up = fitting([*(y for _, y in points), *ends], plot.y.log, floor=plot.bars)
        if plot.bars:
            groups = max([len(plot.categories), *(len(series.points) for series in plot.series)])
            self._across = Scale(0.5, max(1, groups) + 0.5)
        else:
            self._across = fitting((x for x, _ in points), plot.x.log, tight=True)
        self.recolour()

    @property
    def rules(self) -> list[float]:
        """Ticks of the hairlines, as many as there is room to name."""
        ticks, line = self._up.ticks(), self.fontMetrics().height()
        most = max(1, int(self.height() / line - self.heads - self.feet))
        return ticks[:: -(-len(ticks) // most)]

    def room(self) -> QRectF:
        return super().room().adjusted(0, 0, -DOT_PX, 0)

    def place_x(self, room: QRectF, value: float) -> float:
        return room.left() + self._across.place(value) * room.width()

    def place_y(self, room: QRectF, value: float) -> float:
        return room.bottom() - self._up.place(value) * room.height()

    def draw(self, painter: QPainter, room: QRectF) -> None:
        self._spots = []
        self._draw_names(painter, room)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        draw = self._draw_bars if self._plot.bars else self._draw_line
        for at, (series, style) in enumerate(zip(self._plot.series, self._styles, strict=True)):
            draw(painter, room, series, style, at)

    def _draw_names(self, painter: QPainter, room: QRectF) -> None:
        """The axes' names, and as many ticks of the lower one as there is room for."""
        metrics = self.fontMetrics()
        painter.setPen(self.theme.color("mute"))
        painter.drawText(QPointF(0, metrics.ascent()), self._fit(words.axis(self._plot.y), self.width()))
        ticks = self._ticks(room)
        free = -1.0
        for at, text in ticks:
            wide = metrics.horizontalAdvance(text)
            start = min(max(room.left(), self.place_x(room, at) - wide / 2), room.right() - wide)
            if start > free:
                painter.drawText(QPointF(start, room.bottom() + 3 + metrics.ascent()), text)
                free = start + wide + metrics.averageCharWidth()
        if not self._plot.bars or self._plot.x.title:
            name = self._fit(words.axis(self._plot.x), room.width())
            left = room.right() - metrics.horizontalAdvance(name)
            painter.drawText(QPointF(left, self.height() - metrics.descent()), name)

    def _ticks(self, room: QRectF) -> list[tuple[float, str]]:
        if not self._plot.bars:
            return [(at, words.value(self._plot.x, at)) for at in self._across.ticks(ACROSS)]
        wide = room.width() / max(1, len(self._plot.categories)) - self.fontMetrics().averageCharWidth()
        names = list(map(known, self._plot.categories))
        if self._short and max(map(self.fontMetrics().horizontalAdvance, names), default=0) > wide:
            names = list(self._short)[: len(names)]
        return [(number, self._fit(name, wide)) for number, name in enumerate(names, 1)]

    def _fit(self, text: str, width: float) -> str:
        return self.fontMetrics().elidedText(text, Qt.TextElideMode.ElideRight, int(width))

    def _draw_line(self, painter: QPainter, room: QRectF, series: Series, style: Style, at: int) -> None:
        there = [at for at, (x, y) in enumerate(series.points) if self._across.has(x) and self._up.has(y)]
        self._draw_band(painter, room, series, there, style)
        points = [QPointF(self.place_x(room, x), self.place_y(room, y)) for x, y in (series.points[at] for at in there)]
        dots = all(len(each.points) <= MOST_DOTS for each in self._plot.series)
        pen = QPen(QColor(style.color), LINE_PX, _DASHES[style.dash])
        pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
        painter.setPen(pen)
        painter.drawPolyline(points)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(style.color))
        for index, point in zip(there, points, strict=True):
            if dots:
                painter.drawEllipse(point, DOT_PX, DOT_PX)
            self._spots.append(Spot(QRectF(point, point), series, index))

    def _draw_band(self, painter: QPainter, room: QRectF, series: Series, there: Iterable[int], style: Style) -> None:
        """The intervals around the points, joined; a lone one as a bar."""
        edges = [
            [QPointF(self.place_x(room, series.points[at][0]), self.place_y(room, end)) for end in between]
            for at in there
            if (between := words.interval(series, at)) and all(map(self._up.has, between))
        ]
        color = QColor(style.color)
        if len(edges) == 1:
            self._draw_whisker(painter, color, *edges[0])
            return
        color.setAlphaF(BAND)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(color)
        painter.drawPolygon([low for low, _ in edges] + [high for _, high in reversed(edges)])

    def _draw_whisker(self, painter: QPainter, color: QColor, low: QPointF, high: QPointF) -> None:
        painter.setPen(QPen(color, 1))
        painter.drawLine(low, high)
        for end in (low, high):
            painter.drawLine(end - QPointF(3, 0), end + QPointF(3, 0))

    def _draw_bars(self, painter: QPainter, room: QRectF, series: Series, style: Style, at: int) -> None:
        floor = room.bottom() if self._up.log else self.place_y(room, 0.0)
        edges, of_sides = bar_edges(len(series.points), at, len(self._plot.series)), colors(self.theme)
        for index, (left, right, (_, y)) in enumerate(zip(*edges, series.points, strict=True)):
            if not self._up.has(y):
                continue
            start, top = self.place_x(room, left), self.place_y(room, y)
            bar = QRectF(start, min(top, floor), self.place_x(room, right) - start, abs(floor - top))
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(of_sides[index % len(of_sides)] if self._short else style.color))
            painter.drawRect(bar)
            self._spots.append(Spot(bar, series, index))
            between = words.interval(series, index)
            if between and all(map(self._up.has, between)):
                ends = [QPointF(bar.center().x(), self.place_y(room, end)) for end in between]
                self._draw_whisker(painter, self.theme.color("text"), *ends)

    def nearest(self, at: QPointF) -> str:
        """The words of the point or bar there; "" where none is near."""
        found = min(self._spots, key=lambda spot: _distance(spot.area, at), default=None)
        if found is None or _distance(found.area, at) > NEAR_PX:
            return ""
        return words.point(self._plot, found.series, found.place)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip:
            assert isinstance(event, QHelpEvent)
            QToolTip.showText(event.globalPos(), tip(self.nearest(event.pos().toPointF())), self)
            return True
        return super().event(event)


def _distance(area: QRectF, at: QPointF) -> float:
    across = max(area.left() - at.x(), 0.0, at.x() - area.right())
    up = max(area.top() - at.y(), 0.0, at.y() - area.bottom())
    return float(across**2 + up**2) ** 0.5
