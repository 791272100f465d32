"""The roofline (Williams et al. 2009): ceilings on logarithmic axes, and a named dot for each operating point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from PySide6.QtCore import QLineF, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPen, QPolygonF, QTransform
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.charts.legend import Legend, LegendLabel
from app.charts.scale import Scale
from app.lab.pictures import words
from app.lab.pictures.plot import NEAR_PX, LabAxes
from app.language import figure, known, tr
from app.theme.direction import TO_THE_RIGHT
from app.theme.theme import Theme
from app.theme.widgets import fill
from engine.protocol.lab import Axis, Ceiling, LabRoofline, Plot, PointGroup, RoofPoint, Series

HEIGHT_PX = 400
DOT_PX, SMALL_DOT_PX, ROOF_PX = 4.5, 3.5, 1.75
PIECE = 2.0
"""Extent of the piece of a point's roof to both sides of it, in times its intensity."""
LABEL_GAP = 10
"""Pixels between a label and the line or dot that it stands beside."""
LEFT, RIGHT, ABOVE, BELOW = 8.0, 4.0, 2.0, 3.0
"""Factors by which the axes go beyond the outermost values: there labels stand."""
X = Axis(title=tr("Arithmetic intensity"), unit=tr("operations a byte"), log=True)
Y = Axis(title=tr("Speed"), unit=tr("operations a second"), log=True)
GROUPS: dict[PointGroup, tuple[str, str]] = {
    "measured": ("accent", tr("measured")),
    "batch": ("violet", tr("computed: more answers at once")),
    "drafts": ("teal", tr("computed: draft tokens, all accepted")),
    "switch": ("mute", tr("computed: a switch changed")),
}
"""Colours, and what they mean."""


class RoofView(QWidget):
    """Its axes over a legend."""

    def __init__(self, found: LabRoofline, theme: Theme) -> None:
        super().__init__()
        self.setLayoutDirection(TO_THE_RIGHT)
        self.axes = RoofAxes(theme)
        self.axes.show_roofline(found)
        legend = LegendLabel(theme)
        there = {point.group for point in found.points}
        legend.show_entries(
            [
                Legend(color, text, "●" if group == "measured" else "○")
                for group, (color, text) in GROUPS.items()
                if group in there
            ]
            + ([Legend("text", tr("the roof it is held against"), "━")] if "measured" in there else [])
        )
        fill(QVBoxLayout(self), (self.axes, 1), legend, margins=0, spacing=4)
        theme.changed.connect(self.axes.recolour)
        self.setAccessibleName(tr("Roofline"))
        self.setAccessibleDescription(" ".join(f"{point_words(point)}." for point in found.points))


class Label(NamedTuple):
    """A dot's words beside it: ``at`` is the end of the text that is next to the dot, in the middle of its height."""

    dot: QPointF
    text: str
    at: QPointF
    left: bool
    """The text ends there."""


class Name(NamedTuple):
    """A ceiling's words beside its line: where their baseline begins, and how it is turned, degrees clockwise."""

    text: str
    at: QPointF
    turned: float

    def area(self, metrics: QFontMetrics) -> QPolygonF:
        """Polygon that the words cover."""
        words = QRectF(0, -metrics.ascent(), metrics.horizontalAdvance(self.text), metrics.height())
        return QTransform().translate(self.at.x(), self.at.y()).rotate(self.turned).map(QPolygonF(words))


class RoofAxes(LabAxes):
    """Axes of the roofline. Measured points are labelled below their roof; no labels or names of ceilings overlap."""

    _found: LabRoofline | None = None

    def sizeHint(self) -> QSize:
        return QSize(self.theme.px(640), self.theme.px(HEIGHT_PX))

    def recolour(self) -> None:
        super().recolour()
        self.updateGeometry()

    def show_roofline(self, found: LabRoofline) -> None:
        """Take it in; ceilings and points without a positive number have no place and are left out."""
        self._found = found
        self._points = [point for point in found.points if point.intensity > 0 and point.operations > 0]
        self._measured = [point for point in self._points if point.group == "measured"]
        self._reads, self._products = (
            sorted((each for each in found.ceilings if each.unit == unit and each.value > 0), key=_value)
            for unit in ("bytes", "operations")
        )
        tops = [each.value for each in self._products] or [max((p.roof for p in self._points), default=1.0)]
        ridges = [top / read.value for top in tops for read in self._reads]
        across = [*(point.intensity for point in self._points), *ridges] or [1.0]
        up = [low for point in self._points for low in (point.low, point.operations) if low > 0] or tops
        self.show_plot(Plot(title="", x=X, y=Y, series=[Series(name="", points=[])]))
        self._across = Scale(min(across) / LEFT, max(across) * RIGHT, True)
        self._up = Scale(min(up) / BELOW, max(tops) * ABOVE, True)
        self.recolour()

    def draw(self, painter: QPainter, room: QRectF) -> None:
        self._draw_names(painter, room)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._dots: list[tuple[QPointF, RoofPoint]] = []
        if self._found is None or not self._reads or not self._products:
            return
        self._draw_roofs(painter, room)
        for point in self._points:
            self._draw_point(painter, room, point)
        labels = self.labels_of(room)
        for name in self.names_of(room, labels):
            self._draw_name(painter, name)
        for label in labels:
            self._draw_label(painter, label)

    # --- roofs -----------------------------------------------------------------------------------------------------

    def _draw_roofs(self, painter: QPainter, room: QRectF) -> None:
        """Each bandwidth's slope up to the highest product, each product's flat from the steepest slope on; and, over
        what was measured, the piece of its own roof, which lies between flats where it multiplies in both ways."""
        painter.setPen(QPen(self.theme.color("mute"), 1, Qt.PenStyle.DashLine))
        for read in self._reads:
            painter.drawLine(self._slope(room, read))
        for product in self._products:
            start = self._place(room, product.value / self._reads[-1].value, product.value)
            painter.drawLine(QLineF(start, QPointF(room.right(), start.y())))
        painter.setPen(QPen(self.theme.color("text"), ROOF_PX))
        for point in self._measured:
            painter.drawLine(self.roof_of(room, point))

    def roof_of(self, room: QRectF, point: RoofPoint) -> QLineF:
        """The piece over a point of the roof that it is held against: of a slope, or a flat up to the slope."""
        left, right = point.intensity / PIECE, point.intensity * PIECE
        slope = next((r.value for r in self._reads if math.isclose(r.value * point.intensity, point.roof)), 0.0)
        if slope:
            return QLineF(self._place(room, left, slope * left), self._place(room, right, slope * right))
        left = min(point.intensity, max(left, point.roof / self._reads[-1].value))
        return QLineF(self._place(room, left, point.roof), self._place(room, right, point.roof))

    def _slope(self, room: QRectF, read: Ceiling) -> QLineF:
        """From the left or lower end of the axes to the height of the highest product."""
        top = self._products[-1].value
        left = max(self._across.low, self._up.low / read.value)
        return QLineF(self._place(room, left, left * read.value), self._place(room, top / read.value, top))

    def names_of(self, room: QRectF, labels: Sequence[Label]) -> list[Name]:
        """Place the ceilings' names: below the start of a slope in its direction, above the end of a flat."""
        return [*self._slope_names(room), *self._flat_names(room, labels)]

    def _slope_names(self, room: QRectF) -> list[Name]:
        metrics, reads = self.fontMetrics(), self._reads[::-1]
        lines = [self._slope(room, read) for read in reads]
        angle = lines[0].angle()  # of all: on these axes they are parallel
        sine, cosine = math.sin(math.radians(angle)), math.cos(math.radians(angle))
        away = [(line.y2() - lines[0].y2()) * cosine + (line.x2() - lines[0].x2()) * sine for line in lines]
        found = []
        for read, line, place, start in zip(reads, lines, away, stacked(away, metrics.height()), strict=True):
            down = start - place + metrics.ascent() + 1
            above = room.bottom() - line.y1()
            along = max(LABEL_GAP, ((down + metrics.descent()) * cosine - above) / sine)  # not below the axis
            at = line.p1() + QPointF(along * cosine + down * sine, down * cosine - along * sine)
            found.append(Name(f"{known(read.name)}: {figure(read.value / 1e9, ',.3g')} GB/s", at, -angle))
        return found

    def _flat_names(self, room: QRectF, labels: Sequence[Label]) -> list[Name]:
        """Place names as far right as no measured point's line and no label crosses them, else at the right end."""
        metrics, ridge = self.fontMetrics(), self._slope(room, self._reads[-1]).x2()
        lines = [self.place_x(room, point.intensity) for point in self._measured]
        up = [-self.place_y(room, product.value) for product in self._products]
        found = []
        for product, start in zip(self._products, stacked(up, metrics.height()), strict=True):
            text = self._fit(f"{known(product.name)}: {words.with_unit(Y, product.value)}", room.right() - ridge)
            wide = metrics.horizontalAdvance(text)
            y = -start - metrics.descent() - SMALL_DOT_PX
            middle = y - (metrics.ascent() - metrics.descent()) / 2
            taken = [(x, x) for x in lines]
            taken += [self._ends(each) for each in labels if abs(each.at.y() - middle) < metrics.height()]
            ends = [room.right(), *sorted((left - LABEL_GAP for left, _ in taken), reverse=True)]
            free = (e for e in ends if e - wide > ridge and not any(e - wide < r and left < e for left, r in taken))
            found.append(Name(text, QPointF(next(free, room.right()) - wide, y), 0.0))
        return found

    def _ends(self, label: Label) -> tuple[float, float]:
        """The left and the right end of its words."""
        wide, x = self.fontMetrics().horizontalAdvance(label.text), label.at.x()
        return (x - wide, x) if label.left else (x, x + wide)

    def _draw_name(self, painter: QPainter, name: Name) -> None:
        painter.save()
        painter.translate(name.at)
        painter.rotate(name.turned)
        painter.setPen(self.theme.color("text"))
        painter.drawText(QPointF(), name.text)
        painter.restore()

    # --- points ----------------------------------------------------------------------------------------------------

    def _draw_point(self, painter: QPainter, room: QRectF, point: RoofPoint) -> None:
        """A disc for what was measured, with its interval and a dotted line up to the roof; else a ring."""
        at, color = self._place(room, point.intensity, point.operations), self.theme.color(GROUPS[point.group][0])
        measured = point.group == "measured"
        if measured:
            painter.setPen(QPen(color, 1, Qt.PenStyle.DotLine))
            painter.drawLine(at, self._place(room, point.intensity, point.roof))
            low, high = (self._place(room, point.intensity, end) for end in (point.low, point.high))
            self._draw_whisker(painter, color, low, high)
        painter.setPen(QPen(color, ROOF_PX))
        painter.setBrush(color if measured else QColor(self.theme.tokens.bg))
        radius = DOT_PX if measured else SMALL_DOT_PX
        painter.drawEllipse(at, radius, radius)
        self._dots.append((at, point))

    def labels_of(self, room: QRectF) -> list[Label]:
        """Place the labels of measured points in the order of their dots' heights, each in a row of its own; the other
        points are described under the mouse."""
        line = self.fontMetrics().height()
        dots = sorted(((self._place(room, p.intensity, p.operations), p) for p in self._measured), key=_height)
        heights = spread([dot.y() for dot, _ in dots], line, room.top() + line / 2, room.bottom() - line / 2)
        return [self._below(room, dot, point, y) for (dot, point), y in zip(dots, heights, strict=True)]

    def _below(self, room: QRectF, dot: QPointF, point: RoofPoint, y: float) -> Label:
        """Right of its dot and of slopes' names; left of it where there is no room, or another's line."""
        metrics = self.fontMetrics()
        feet = [self._place(room, each.intensity, each.low) for each in self._measured if each.low > 0]

        def free(left: float, right: float) -> bool:
            crossed = any(left < foot.x() < right and foot.y() > y - metrics.height() for foot in feet)
            return room.left() < left and right < room.right() and not crossed

        high_as = words.value(Y, float(f"{point.roof:.3g}"))
        share = words.percent(point.operations / point.roof)
        text = tr("{point}: {share} of its roof, {roof}", point=known(point.name), share=share, roof=high_as)
        wide, high = metrics.horizontalAdvance(text), metrics.height()
        row = QPolygonF(QRectF(room.left(), y - high / 2, room.width(), high))
        passed = [name.area(metrics).intersected(row).boundingRect().right() for name in self._slope_names(room)]
        right, left = max(dot.x(), *passed) + LABEL_GAP, dot.x() - LABEL_GAP
        on_left = free(left - wide, dot.x() - 1) and not free(dot.x() + 1, right + wide)
        return Label(dot, text, QPointF(left if on_left else right, y), on_left)

    def _draw_label(self, painter: QPainter, label: Label) -> None:
        metrics = self.fontMetrics()
        painter.setPen(QPen(self.theme.color("mute"), 0.5))
        if QLineF(label.dot, label.at).length() > 1.5 * LABEL_GAP:
            way = QLineF(label.at + QPointF(2 if label.left else -2, 0), label.dot)
            way.setLength(way.length() - DOT_PX)
            painter.drawLine(way)
        painter.setPen(self.theme.color("text"))
        start = label.at.x() - (metrics.horizontalAdvance(label.text) if label.left else 0)
        painter.drawText(QPointF(start, label.at.y() + (metrics.ascent() - metrics.descent()) / 2), label.text)

    def _place(self, room: QRectF, intensity: float, operations: float) -> QPointF:
        return QPointF(self.place_x(room, intensity), self.place_y(room, operations))

    def nearest(self, at: QPointF) -> str:
        found = min(self._dots, key=lambda each: QLineF(each[0], at).length(), default=None)
        return point_words(found[1]) if found is not None and QLineF(found[0], at).length() <= NEAR_PX else ""


def point_words(point: RoofPoint) -> str:
    """Describe the point, such as "batch 1: 2.0 operations a byte, 7.9 G operations a second, 413 tokens a second
    (measured, …)"."""
    return tr(
        "{point}: {intensity:,.3g} operations a byte, {speed}, {rate} tokens a second ({setting})",
        point=known(point.name),
        intensity=point.intensity,
        speed=words.with_unit(Y, point.operations),
        rate=words.count(float(f"{point.tokens:.4g}")),
        setting=known(point.setting),
    )


def spread(wanted: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Places in the order of the rising ``wanted``, at least ``apart`` from each other and as near to them as can be.

    They lie between ``low`` and ``high`` as far as there is room. Neighbours that are too near become a block around
    the mean of what its members want.
    """
    blocks: list[list[float]] = []  # sum of what members want of the first one's place, and how many they are
    for place in wanted:
        blocks.append([place, 1.0])
        while len(blocks) > 1 and _start(blocks[-1]) < _start(blocks[-2]) + blocks[-2][1] * apart:
            total, members = blocks.pop()
            blocks[-1][0] += total - members * blocks[-1][1] * apart
            blocks[-1][1] += members
    found = [_start(block) + at * apart for block in blocks for at in range(int(block[1]))]
    for at in range(len(found)):
        found[at] = max(found[at], low + at * apart)
    for at in range(1, len(found) + 1):
        found[-at] = min(found[-at], high - (at - 1) * apart)
    return found


def stacked(lines: Sequence[float], apart: float) -> list[float]:
    """Starts of the words of each of the rising ``lines``: at its line; those of lines that are too near for words
    ``apart`` high between them, one after another at the last of these."""
    groups: list[list[float]] = []
    for line in lines:
        if groups and line - groups[-1][-1] < len(groups[-1]) * apart:
            groups[-1].append(line)
        else:
            groups.append([line])
    return [group[-1] + at * apart for group in groups for at in range(len(group))]


def _start(block: Sequence[float]) -> float:
    return block[0] / block[1]


def _height(dot: tuple[QPointF, RoofPoint]) -> float:
    return dot[0].y()


def _value(ceiling: Ceiling) -> float:
    return ceiling.value
