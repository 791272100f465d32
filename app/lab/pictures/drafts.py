"""Picture of drafts, step by step, and their fates: chips from left to right, a tree where drafts branch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, compress
from typing import NamedTuple

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPainterPath, QPen

from app.charts.legend import Legend
from app.lab.pictures import words
from app.lab.pictures.painter import Painter, solid
from app.language import figure
from app.theme.theme import Theme
from engine.protocol.lab import Drafts, DraftToken, Fate

TOKENS: dict[Fate, str] = {"own": "accent", "accepted": "good", "refused": "warn"}
SIGNS: dict[Fate, str] = {"own": "●", "accepted": "✓", "refused": "✕"}
CHIP_PX, BARE_PX, SPACE_PX, SIGN_PX = 20, 10, 6, 8
"""``BARE_PX``: how high a chip is without words."""


class ChipFit(NamedTuple):
    """Greatest width of a chip's text (0: it is its sign alone), the room within its edges, and that between two."""

    text: int
    pad: int = 6
    link: int = 8


FITS = (ChipFit(120), ChipFit(64), ChipFit(36), ChipFit(0), ChipFit(0, 1, 3))
"""The next where a step finds no room."""


class TokenSpot(NamedTuple):
    """A token's place in its step: its line, its column, the token it is joined to (-1: none)."""

    line: int
    column: int
    parent: int


def lines_of(step: Sequence[DraftToken]) -> list[TokenSpot]:
    """One child of a token goes on in its line, one that became text if there is; each other begins a line below."""
    parents = [token.parent if 0 <= token.parent < place else -1 for place, token in enumerate(step)]
    straight: dict[int, int] = {}
    for place in sorted(range(len(step)), key=lambda place: (step[place].fate == "refused", place)):
        straight.setdefault(parents[place], place)
    spots: list[TokenSpot] = []
    lines = 1
    for place, parent in enumerate(parents):
        if straight[parent] == place:
            line = spots[parent].line if parent >= 0 else 0
        else:
            line, lines = lines, lines + 1
        spots.append(TokenSpot(line, spots[parent].column + 1 if parent >= 0 else 0, parent))
    return spots


def _lines(step: Sequence[DraftToken]) -> int:
    return max((spot.line for spot in lines_of(step)), default=0) + 1


class DraftsPainter(Painter):
    """The last steps that fit, the newest at the bottom. Two moments a step: it is drafted, and it is checked."""

    def __init__(self, theme: Theme, picture: Drafts) -> None:
        super().__init__(theme)
        self._steps = picture.steps
        self.moments = 2 * len(picture.steps)

    @property
    def height(self) -> float:
        return sum(self._row * _lines(step) + SPACE_PX for step in self._steps)

    @property
    def _row(self) -> int:
        return self.theme.px(BARE_PX if self.wordless else CHIP_PX) + 4

    def paint(self, painter: QPainter, room: QRectF) -> None:
        row = self._row
        shown = self._steps[: -(-self.at // 2)]
        left_out = self._left_out(shown, room, row)
        top = room.top()
        if left_out:
            line = QRectF(room.left(), top, room.width(), self.metrics.height())
            self.write(painter, line, words.earlier_steps(left_out), Qt.AlignmentFlag.AlignLeft)
            top += line.height() + 4
        gutter = self.gutter([figure(len(self._steps))], room)
        for number, step in enumerate(shown[left_out:], left_out + 1):
            area = QRectF(room.left(), top, gutter, row - 4)
            self.write(painter, area, figure(number), Qt.AlignmentFlag.AlignLeft)
            top += row * self._draw_step(
                painter,
                number,
                step,
                QRectF(area.right(), top, room.right() - area.right(), row),
                checked=2 * number <= self.at,
            )
            top += SPACE_PX

    def _left_out(self, steps: Sequence[Sequence[DraftToken]], room: QRectF, row: int) -> int:
        """Number of first steps that find no room; the last step is always shown."""
        heights: list[int] = []
        for step in reversed(steps):
            heights.append(row * _lines(step) + SPACE_PX)
            head = self.metrics.height() + 4 if len(heights) < len(steps) else 0
            if sum(heights) - SPACE_PX + head > room.height():
                return len(steps) - max(1, len(heights) - 1)
        return 0

    def _draw_step(
        self, painter: QPainter, number: int, step: Sequence[DraftToken], room: QRectF, *, checked: bool
    ) -> int:
        """Returns how many lines it took. Before it is ``checked`` nobody knows what becomes of its tokens."""
        spots = lines_of(step)
        texts = [words.token(token.text) for token in step]
        for fit in FITS:
            widest = self.theme.px(fit.text) if fit.text else 0
            widths = [min(self.metrics.horizontalAdvance(text) + 1, widest) for text in texts]
            areas = self._areas(spots, widths, fit, room)
            if all(area.right() <= room.right() for area in areas):
                break
        there = [checked or token.fate != "own" for token in step]
        for token, spot, area in compress(zip(step, spots, areas, strict=True), there):
            if spot.parent >= 0:
                kept = checked and token.fate != "refused"
                painter.setPen(QPen(self.theme.color("text" if kept else "mute"), 2 if kept else 1))
                self._link(painter, areas[spot.parent], area, fit.link / 2)
        for token, text, area, width in compress(zip(step, texts, areas, widths, strict=True), there):
            self._draw_chip(painter, token.fate if checked else None, text, area, width, fit.pad)
            self.areas.append((area, words.drafted(number, token) if checked else words.unchecked(number, token)))
        return _lines(step)

    def _areas(self, spots: list[TokenSpot], widths: list[int], fit: ChipFit, room: QRectF) -> list[QRectF]:
        extra = self.theme.px(SIGN_PX) + 2 * fit.pad
        widths = [extra + width + fit.pad if width else extra for width in widths]
        widest = [0] * (1 + max((spot.column for spot in spots), default=0))
        for spot, width in zip(spots, widths, strict=True):
            widest[spot.column] = max(widest[spot.column], width + fit.link)
        lefts = [room.left() + left for left in accumulate(widest, initial=0)]
        return [
            QRectF(lefts[spot.column], room.top() + spot.line * room.height(), width, room.height() - 4)
            for spot, width in zip(spots, widths, strict=True)
        ]

    def _link(self, painter: QPainter, before: QRectF, after: QRectF, half: float) -> None:
        middle = after.left() - half
        corner = QPointF(middle, after.center().y())
        painter.drawPolyline(
            [QPointF(before.right(), before.center().y()), QPointF(middle, before.center().y()), corner]
        )
        painter.drawLine(corner, QPointF(after.left(), after.center().y()))

    def _draw_chip(self, painter: QPainter, fate: Fate | None, text: str, area: QRectF, width: int, pad: int) -> None:
        token = TOKENS[fate] if fate is not None else "mute"
        solid(painter, area, self.theme.tint(token, 0.3, "panel"), 4)
        side = self.theme.px(SIGN_PX)
        if fate is not None:
            self._draw_sign(painter, fate, QRectF(area.left() + pad, area.center().y() - side / 2, side, side))
        if width:
            line = QRectF(area.left() + 2 * pad + side, area.top(), width, area.height())
            self.write(painter, line, text, Qt.AlignmentFlag.AlignLeft, "mute" if fate == "refused" else "text")
            if fate == "refused":
                middle = area.center().y() + 0.5
                painter.drawLine(QPointF(line.left(), middle), QPointF(line.left() + width, middle))

    def _draw_sign(self, painter: QPainter, fate: Fate, box: QRectF) -> None:
        """Drawn rather than written, as not every font has these signs."""
        color = self.theme.color(TOKENS[fate])
        if fate == "own":
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(color)
            painter.drawEllipse(box.adjusted(1, 1, -1, -1))
            return
        path = QPainterPath(box.topLeft() if fate == "refused" else QPointF(box.left(), box.center().y()))
        if fate == "refused":
            path.lineTo(box.bottomRight())
            path.moveTo(box.topRight())
            path.lineTo(box.bottomLeft())
        else:
            path.lineTo(box.left() + 0.35 * box.width(), box.bottom())
            path.lineTo(box.topRight())
        painter.strokePath(path, QPen(color, 1.6))

    def legend(self) -> list[Legend]:
        found = {token.fate for step in self._steps for token in step}
        return [Legend(TOKENS[fate], words.FATES[fate], sign) for fate, sign in SIGNS.items() if fate in found]
