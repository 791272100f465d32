"""The page pool: a square a page in its owner's colour, filled as far as its slots are; grey where only reserved."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter

from app.charts.canvas import LARGEST, Canvas
from app.charts.hues import HUES, ChatHues
from app.charts.legend import Legend
from app.charts.page_states import FILLS, RESERVED
from app.charts.page_states import PageStates as PageArrays
from app.charts.tiles import empty_color
from app.lab.pictures import words
from app.lab.pictures.painter import Painter
from app.theme.theme import Theme
from engine.protocol import PAGE_STATES, PageOwner
from engine.protocol.lab import Pages

_FREE, _PRIVATE = PAGE_STATES.index("free"), PAGE_STATES.index("private")


class PagesPainter(Painter):
    """The same map as in the view of the cache, in the screen's own pixels."""

    def __init__(self, theme: Theme, picture: Pages) -> None:
        super().__init__(theme)
        self._picture = picture
        self._owners = sorted({owner for owner in picture.owners if owner >= 0})
        self._arrays = _arrays(picture)
        self._canvas: Canvas | None = None
        self._place = QPointF()
        self._ratio = 1.0

    def paint(self, painter: QPainter, room: QRectF) -> None:
        ratio = self._ratio = painter.device().devicePixelRatioF()
        canvas = self._canvas = Canvas(self.theme, ChatHues(), round(self.theme.px(2 * LARGEST) * ratio))
        canvas.show(self._arrays, int(room.width() * ratio), int(room.height() * ratio), grows=False)
        canvas.image.setColor(0, 0)  # the ground between the cells is the widget's own
        canvas.image.setDevicePixelRatio(ratio)
        self._place = room.topLeft()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)  # it is slow, and changes nothing here
        painter.drawImage(self._place, canvas.image)

    def under(self, at: QPointF) -> str:
        inside = (at - self._place) * self._ratio
        page = self._canvas.page_at(int(inside.x()), int(inside.y())) if self._canvas else None
        return "" if page is None else words.page(self._picture, page)

    def legend(self) -> list[Legend]:
        found = [Legend(self.hue(owner), words.owner(self._picture.names, owner)) for owner in self._owners[:HUES]]
        if len(self._owners) > HUES:
            found.append(Legend("mute", words.more(len(self._owners) - HUES), "…"))
        states = self._arrays.states
        if ((states >= RESERVED) & (states < RESERVED + FILLS)).any():  # all of a page, or a part
            found.append(Legend(empty_color(self.theme), words.RESERVED))
        return [*found, Legend("raised", words.FREE)]


def _arrays(picture: Pages) -> PageArrays:
    owners = np.array(picture.owners, dtype=np.int64)
    filled = np.nan_to_num(np.array(picture.filled, dtype=np.float64))[: len(owners)]
    filled = np.pad(filled, (0, len(owners) - len(filled)))
    # A page that holds any token is not shown as empty, nor one with room as full.
    parts = np.clip(np.round(filled * FILLS), 1, FILLS - 1).astype(np.uint8)
    states = np.where(filled <= 0, RESERVED, np.where(filled >= 1, _PRIVATE, RESERVED + parts))
    states = np.where(owners < 0, _FREE, states).astype(np.uint8)
    legend = [PageOwner(chat=str(hue), id="") for hue in range(HUES)]
    return PageArrays(states, np.where(owners < 0, 0, owners % HUES + 1).astype(np.uint16), legend)
