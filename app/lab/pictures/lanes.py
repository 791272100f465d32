"""A Gantt chart: a row a request, what it does in colours over the seconds of the run."""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import structs
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QPainter, QPen

from app.charts.legend import Legend
from app.charts.scale import Scale
from app.lab.pictures import words
from app.lab.pictures.painter import Painter, solid
from app.language import known
from app.theme.theme import Theme
from engine.protocol.lab import Doing, Lanes, Picture

ROW_PX = 24
MOST_SECONDS = 3600
"""Seconds of a run whose moments are told apart."""
HATCHED: tuple[Doing, ...] = ("idle", "paused")
"""What holds a place or pages and does no work."""
ALL: tuple[Doing, ...] = ("waiting", "reading", "writing", "paused", "preempted", "swapped", "idle")


def on_one_axis(pictures: Mapping[int, Picture]) -> dict[int, Picture]:
    """All as they are, but for those over time, which get the axis of the longest."""
    longest = max((each.seconds for each in pictures.values() if isinstance(each, Lanes)), default=0.0)
    return {
        side: structs.replace(each, seconds=longest) if isinstance(each, Lanes) else each
        for side, each in pictures.items()
    }


class LanesPainter(Painter):
    def __init__(self, theme: Theme, picture: Lanes) -> None:
        super().__init__(theme)
        self._picture = picture
        ends = [span.end for lane in picture.lanes for span in lane.spans]
        longest = max([end for end in (picture.seconds, *ends) if 0 < end < float("inf")], default=0.0)
        self._axis = Scale(0.0, longest or 1.0)
        self.moments = math.ceil(min(longest, MOST_SECONDS) * words.MOMENTS_A_SECOND)

    @property
    def height(self) -> float:
        return self.line + 4 + self.theme.px(ROW_PX) * len(self._picture.lanes)

    def paint(self, painter: QPainter, room: QRectF) -> None:
        lanes, metrics = self._picture.lanes, self.metrics
        foot = metrics.height() + 4
        high = min(self.theme.px(ROW_PX), (room.height() - foot) / max(1, len(lanes)))
        names = high >= metrics.height() * 0.9
        gutter = self.gutter([known(lane.name) for lane in lanes], room) if names else 0.0
        area = QRectF(room.left() + gutter, room.top(), room.width() - gutter - 1, high * len(lanes))
        self._draw_axis(painter, area)
        inset = min(4.0, 0.15 * high)
        now = math.inf if self.at == self.moments else self.at / words.MOMENTS_A_SECOND
        for row, lane in enumerate(lanes):
            top = area.top() + row * high
            if names:
                left = QRectF(room.left(), top, gutter, high)
                self.write(painter, left, known(lane.name), Qt.AlignmentFlag.AlignLeft, "text")
            for span in (each for each in lane.spans if each.start < now):
                ends = (span.start, min(span.end, now))
                start, end = (area.left() + self._share(at) * area.width() for at in ends)
                bar = QRectF(start, top + inset, max(1.0, end - start), high - 2 * inset)
                self.areas.append((bar, words.span(lane.name, span)))
                self._draw_span(painter, bar, span.doing)
        if now < math.inf:
            x = area.left() + self._share(now) * area.width()
            painter.setPen(QPen(self.theme.color("text"), 1))
            painter.drawLine(QPointF(x, area.top()), QPointF(x, area.bottom() + 2))

    def _share(self, at: float) -> float:
        return min(1.0, max(0.0, self._axis.place(at)))

    def _color(self, doing: Doing) -> str:
        """None of those that sides have, of which a batch has three."""
        tint = self.theme.tint
        grey = tint("mute", 0.4, "panel")
        return {
            "waiting": grey,
            "reading": tint("teal", 0.5, "panel"),
            "writing": self.theme.tokens.teal,
            "idle": grey,
            "paused": self.theme.tokens.teal,
            "preempted": self.theme.tokens.warn,
            "swapped": tint("warn", 0.5, "panel"),
        }[doing]

    def _draw_axis(self, painter: QPainter, area: QRectF) -> None:
        metrics = self.metrics
        free = area.left() - self.metrics.averageCharWidth()
        for tick in self._axis.ticks():
            at = area.left() + self._axis.place(tick) * area.width()
            painter.setPen(self.theme.color("line"))
            painter.drawLine(QPointF(round(at) + 0.5, area.top()), QPointF(round(at) + 0.5, area.bottom() + 2))
            label = words.seconds(tick)
            wide = metrics.horizontalAdvance(label) + 2
            start = max(area.left(), min(at - wide / 2, area.right() - wide))
            if start > free:
                line = QRectF(start, area.bottom() + 2, wide, metrics.height())
                self.write(painter, line, label, Qt.AlignmentFlag.AlignLeft)
                free = start + wide + metrics.averageCharWidth()

    def _draw_span(self, painter: QPainter, bar: QRectF, doing: Doing) -> None:
        color = QColor(self._color(doing))
        if doing not in HATCHED:
            solid(painter, bar, color, min(2.0, bar.width() / 4))
            return
        painter.setPen(QPen(color, 1))
        painter.setBrush(QBrush(color, Qt.BrushStyle.BDiagPattern))
        painter.drawRect(bar.adjusted(0.5, 0.5, -0.5, -0.5))

    def legend(self) -> list[Legend]:
        found = {span.doing for lane in self._picture.lanes for span in lane.spans}
        return [
            Legend(self._color(doing), words.DOING[doing], "▨" if doing in HATCHED else "■")
            for doing in ALL
            if doing in found
        ]
