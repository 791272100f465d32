"""Painter of one picture: its drawing, the meaning of its colours, and the words for what is under the mouse."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter

from app.charts.legend import Legend
from app.theme.theme import SECTION_PX, Theme

GAP = 6
"""Pixels between words and what they name."""


class Painter:
    """Painter of one picture. Colours and sizes are asked of the theme at each painting, so that it may change."""

    metrics: QFontMetrics
    """Metrics of the small font, once something was drawn."""

    moments = 0
    """Number of moments until the picture was whole; 0: it shows none of them."""

    moment: int | None = None
    """The one that is painted; None, and whatever is past the last: the whole."""

    wordless = False
    """True if nothing is written, and no room is kept for it."""

    def __init__(self, theme: Theme) -> None:
        self.theme = theme
        self.areas: list[tuple[QRectF, str]] = []
        """Areas that were painted last, each with its words."""

    def draw(self, painter: QPainter, room: QRectF) -> None:
        """Draw into ``room``, in logical pixels."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        font = self.theme.ui_font(SECTION_PX)
        if self.wordless:
            font.setPixelSize(1)
        painter.setFont(font)
        self.metrics, self.areas = painter.fontMetrics(), []
        self.paint(painter, room)

    @property
    def line(self) -> int:
        """The height of a line of the small font, also before something was drawn."""
        return QFontMetrics(self.theme.ui_font(SECTION_PX)).height()

    @property
    def height(self) -> float | None:
        """Pixels in which all of it has room, at the theme's text size; None where it takes whatever there is."""
        return None

    @property
    def at(self) -> int:
        """Moments that are past in what is painted."""
        return self.moments if self.moment is None else min(self.moment, self.moments)

    def paint(self, painter: QPainter, room: QRectF) -> None:
        raise NotImplementedError

    def under(self, at: QPointF) -> str:
        """Describe what was painted last at that place; "" for nothing."""
        return next((said for area, said in reversed(self.areas) if area.contains(at)), "")

    def legend(self) -> list[Legend]:
        return []

    def hue(self, owner: int) -> str:
        """The colour of a chat or request, by its place: the same as in the page map."""
        return self.theme.chat_hues[owner % len(self.theme.chat_hues)]

    def write(self, painter: QPainter, area: QRectF, text: str, where: Qt.AlignmentFlag, token: str = "mute") -> None:
        """One line, cut where the area ends, in the middle of its height."""
        if self.wordless:
            return
        painter.setPen(self.theme.color(token))
        shown = self.metrics.elidedText(text, Qt.TextElideMode.ElideRight, int(area.width()) + 1)
        painter.drawText(area, where | Qt.AlignmentFlag.AlignVCenter, shown)

    @property
    def foot(self) -> float:
        """The height of a line below the picture, with its distance."""
        return self.metrics.height() + 4

    def write_foot(self, painter: QPainter, room: QRectF, below: QRectF, text: str) -> None:
        """Write a line over the width of ``room`` right below what was drawn."""
        line = QRectF(room.left(), below.bottom() + 4, room.width(), self.metrics.height())
        self.write(painter, line, text, Qt.AlignmentFlag.AlignLeft)

    def gutter(self, names: list[str], room: QRectF) -> float:
        """The width that names left of the rows take, at most a third."""
        if self.wordless:
            return 0.0
        widest = max((self.metrics.horizontalAdvance(name) for name in names), default=0)
        return min(widest, room.width() / 3) + GAP if widest else 0.0


def solid(painter: QPainter, area: QRectF, color: QColor | str, radius: float = 0.0) -> None:
    """Fill an area without an edge."""
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QColor(color))
    if radius:
        painter.drawRoundedRect(area, radius, radius)
    else:
        painter.drawRect(area)
