"""Named amounts of bytes as bars, beside a limit that they may or may not keep to."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen

from app.charts.legend import Legend
from app.charts.scale import placeable
from app.lab.pictures import words
from app.lab.pictures.painter import GAP, Painter, solid
from app.language import known
from app.theme.theme import Theme
from engine.protocol.lab import Amounts

ROW_PX, BAR_PX = 30, 16
FAR = 20
"""A limit of more times the largest amount is only named: on its scale the bars would be too short to see."""


class AmountsPainter(Painter):
    def __init__(self, theme: Theme, picture: Amounts) -> None:
        super().__init__(theme)
        self._rows = [
            (known(name), max(0.0, amount) if placeable(amount, False) else 0.0)
            for name, amount in zip(picture.names, picture.amounts, strict=False)
        ]
        self._limit = picture.limit if placeable(picture.limit, False) else 0.0

    @property
    def height(self) -> float:
        return (self.line + 4) * (self._limit > 0) + self.theme.px(ROW_PX) * len(self._rows)

    def paint(self, painter: QPainter, room: QRectF) -> None:
        metrics = self.metrics
        largest = max((amount for _, amount in self._rows), default=0.0)
        named = 0.0 if self.wordless else self._limit
        far = named > FAR * largest
        limit = 0.0 if far else named
        head = metrics.height() + 4 if named > 0 else 0
        gutter = self.gutter([name for name, _ in self._rows], room)
        sizes = max((metrics.horizontalAdvance(words.in_bytes(amount)) for _, amount in self._rows), default=0) + GAP
        left, wide = room.left() + gutter, max(1.0, room.width() - gutter - sizes - 2)
        most = max(limit, largest) or 1.0
        high = min(self.theme.px(ROW_PX), (room.height() - head) / max(1, len(self._rows)))
        thick = min(self.theme.px(BAR_PX), 0.7 * high)
        if limit > 0:
            at = left + wide * limit / most
            self._draw_limit(painter, at, QRectF(left, room.top(), room.right() - left, head + high * len(self._rows)))
        elif far:
            line = QRectF(left, room.top(), room.right() - left, metrics.height())
            self.write(painter, line, words.far_limit(named), Qt.AlignmentFlag.AlignRight)
        for row, (name, amount) in enumerate(self._rows):
            top = room.top() + head + row * high
            self.write(painter, QRectF(room.left(), top, gutter - GAP, high), name, Qt.AlignmentFlag.AlignLeft, "text")
            inside = min(amount, limit) if limit > 0 else amount
            bar = QRectF(left, top + (high - thick) / 2, wide * inside / most, thick)
            solid(painter, bar, self.theme.color("accent"))
            over = QRectF(bar.right(), bar.top(), wide * (amount - inside) / most, thick)
            if amount > inside:
                solid(painter, over, self.theme.color("warn"))
            self._write_size(painter, QPointF(over.right() + GAP, top), high, words.in_bytes(amount))
            self.areas.append((QRectF(room.left(), top, room.width(), high), words.amount(name, amount, self._limit)))

    def _write_size(self, painter: QPainter, at: QPointF, high: float, text: str) -> None:
        """On the line of the limit, where that is in the way, which is taken out there."""
        tall = self.metrics.height()
        area = QRectF(at.x(), at.y() + (high - tall) / 2, self.metrics.horizontalAdvance(text) + 2, tall)
        painter.setCompositionMode(QPainter.CompositionMode.CompositionMode_Clear)
        painter.fillRect(area.adjusted(-2, 0, 2, 0), Qt.GlobalColor.transparent)
        painter.setCompositionMode(QPainter.CompositionMode.CompositionMode_SourceOver)
        self.write(painter, area, text, Qt.AlignmentFlag.AlignLeft, "text")

    def _draw_limit(self, painter: QPainter, at: float, area: QRectF) -> None:
        painter.setPen(QPen(self.theme.color("text"), 1.5, Qt.PenStyle.DashLine))
        high = self.metrics.height()
        painter.drawLine(QPointF(at, area.top() + high), QPointF(at, area.bottom()))
        text = words.limit(self._limit)
        wide = self.metrics.horizontalAdvance(text) + 2
        start = max(area.left(), min(at - wide / 2, area.right() - wide))
        self.write(painter, QRectF(start, area.top(), wide, high), text, Qt.AlignmentFlag.AlignLeft)

    def legend(self) -> list[Legend]:
        over = self._limit > 0 and any(amount > self._limit for _, amount in self._rows)
        return [Legend("accent", words.WITHIN), Legend("warn", words.BEYOND)] if over else []
