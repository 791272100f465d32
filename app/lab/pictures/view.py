"""A picture of the Lab, whichever kind it is, with its legend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QHelpEvent, QPainter, QPaintEvent, QPixmap
from PySide6.QtWidgets import QSizePolicy, QToolTip, QVBoxLayout, QWidget

from app.charts.legend import LegendLabel
from app.lab.pictures import words
from app.lab.pictures.amounts import AmountsPainter
from app.lab.pictures.cells import CellsPainter
from app.lab.pictures.drafts import DraftsPainter
from app.lab.pictures.heat import HeatPainter
from app.lab.pictures.lanes import LanesPainter
from app.lab.pictures.pages import PagesPainter
from app.lab.pictures.painter import Painter
from app.lab.pictures.strip import StripPainter
from app.lab.pictures.tree import TreePainter
from app.theme.direction import TO_THE_RIGHT
from app.theme.theme import SECTION_PX, Theme
from app.theme.widgets import fill, named, tip
from engine.protocol import lab

PAINTERS: dict[type, Callable[[Theme, Any], Painter]] = {
    lab.Cells: CellsPainter,
    lab.Pages: PagesPainter,
    lab.Tree: TreePainter,
    lab.Lanes: LanesPainter,
    lab.Drafts: DraftsPainter,
    lab.Heat: HeatPainter,
    lab.Strip: StripPainter,
    lab.Amounts: AmountsPainter,
}

MINIATURE = (120, 70)
"""Width and height, pixels at the usual text size."""
_PALE = 0.4


class PictureView(QWidget):
    """Says what it shows in its accessible description, and a detail of it under the mouse."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setLayoutDirection(TO_THE_RIGHT)
        self._picture: lab.Picture | None = None
        self._painter: Painter | None = None
        self._face = Face(theme, self)
        self._legend = LegendLabel(theme)
        fill(QVBoxLayout(self), (self._face, 1), self._legend, margins=0, spacing=6)
        theme.changed.connect(self._show_legend)
        self.clear()

    def show_picture(self, picture: lab.Picture) -> None:
        """Cheap where the picture is the one on show, or where nobody looks."""
        if picture == self._picture:
            return
        self._picture = picture
        self._painter = PAINTERS[type(picture)](self._face.theme, picture) if words.shows(picture) else None
        self._face.show_painter(self._painter, "" if self._painter else words.nothing(picture))
        self._show_legend()
        named(self, title=words.name(picture), accessibleDescription=words.sentence(picture))

    @property
    def picture(self) -> lab.Picture | None:
        return self._picture

    @property
    def moments(self) -> int:
        """Number of moments until the picture was whole; 0 if it shows none of them."""
        return self._painter.moments if self._painter is not None else 0

    def fit(self, least: int, most: int) -> None:
        """Take the height that the picture wants, within these pixels; where it wants none, as before."""
        if self._painter is not None and (height := self._painter.height) is not None:
            self.setMinimumHeight(0)
            self._face.take(round(min(max(height, least), most)))

    def show_moment(self, moment: int) -> None:
        """Show it as it was then; past the last of its moments it stays whole."""
        if self._painter is not None and self._painter.at != min(moment, self.moments):
            self._painter.moment = moment
            self._face.show_painter(self._painter, "")

    def clear(self) -> None:
        self._picture = self._painter = None
        self._face.show_painter(None, "")
        self._show_legend()
        named(self, title=words.NO_PICTURE, accessibleDescription="")

    def _show_legend(self) -> None:
        self._legend.show_entries(self._painter.legend() if self._painter else [])


class Face(QWidget):
    """Keeps what was painted as an image until the picture, the theme or the size changes."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.theme = theme
        self._painter: Painter | None = None
        self._words = ""
        self._opacity = 1.0
        self._high = 0
        self._image: QPixmap | None = None
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Expanding)
        theme.changed.connect(self._repaint)

    def sizeHint(self) -> QSize:
        return QSize(self.theme.px(320), self._high or self.theme.px(200))

    def minimumSizeHint(self) -> QSize:
        return QSize(self.theme.px(160), self.theme.px(80))

    def take(self, height: int) -> None:
        """Set the height in pixels, also as the minimum, so that a layout gives no more."""
        self._high = height
        self.setMinimumHeight(height)

    def show_painter(self, painter: Painter | None, words: str) -> None:
        """``words`` stand in the middle where there is nothing to paint."""
        self._painter, self._words = painter, words
        self._repaint()

    def _repaint(self) -> None:
        self._image = None
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        ratio = self.devicePixelRatioF()
        pixels = QSize(round(self.width() * ratio), round(self.height() * ratio))
        if self._image is None or self._image.size() != pixels or self._image.devicePixelRatio() != ratio:
            self._image = QPixmap(pixels)
            self._image.setDevicePixelRatio(ratio)
            self._image.fill(Qt.GlobalColor.transparent)
            self._draw(self._image)
        painter = QPainter(self)
        painter.setOpacity(self._opacity)
        painter.drawPixmap(0, 0, self._image)

    def _draw(self, image: QPixmap) -> None:
        painter = QPainter(image)
        painter.setLayoutDirection(TO_THE_RIGHT)
        try:
            if self._painter is not None:
                self._painter.draw(painter, QRectF(self.rect()))
            elif self._words:
                painter.setFont(self.theme.ui_font(SECTION_PX))
                painter.setPen(self.theme.color("mute"))
                painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap, self._words)
        finally:
            painter.end()  # Qt crashes where an exception leaves it open

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and self._painter is not None:
            assert isinstance(event, QHelpEvent)
            QToolTip.showText(event.globalPos(), tip(self._under(event)), self)
            return True
        return super().event(event)

    def _under(self, event: QHelpEvent) -> str:
        return self._painter.under(event.pos().toPointF()) if self._painter is not None else ""


class Miniature(Face):
    """A small picture without words. One that is only a drawing, of no run, is pale, and says so under the mouse."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(theme, parent)
        self._picture: lab.Picture | None = None
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self._fit()
        theme.changed.connect(self._fit)

    def show_picture(self, picture: lab.Picture, drawing: bool) -> None:
        """Cheap where the picture is the one on show."""
        if picture is self._picture:
            return
        self._picture = picture
        painter = PAINTERS[type(picture)](self.theme, picture) if words.shows(picture) else None
        if painter is not None:
            painter.wordless = True
        self._opacity = _PALE if drawing else 1.0
        self.setAccessibleName(words.miniature(picture, drawing))
        self.setAccessibleDescription("" if drawing else words.sentence(picture))
        self.show_painter(painter, "")

    def _fit(self) -> None:
        self.setFixedSize(*map(self.theme.px, MINIATURE))

    def _under(self, event: QHelpEvent) -> str:
        return f"{self.accessibleName()}. {self.accessibleDescription()}".strip()
