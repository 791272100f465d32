"""Legend of the page map: states by their pattern, in no chat's colour, and chats by their colour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QFontMetrics, QImage, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.cache.words import MEANINGS, PLACES, STATE_TITLES
from app.charts import tiles
from app.charts.hues import NO_OWNER, ChatHues
from app.charts.page_states import SWAPPED
from app.language import figure, tr
from app.theme.direction import TO_THE_RIGHT
from app.theme.theme import SECTION_PX, Theme
from app.theme.widgets import tip
from engine.protocol import PAGE_STATES

TILE = 12
GAP = 6
LINE_PX = 18
MOST_CHATS = 8
MOST_CHARS = 28


class StateLegend(QWidget):
    """Wraps into as many lines as the width needs."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setLayoutDirection(TO_THE_RIGHT)
        self._entries = [*enumerate(STATE_TITLES[state] for state in PAGE_STATES), (SWAPPED, PLACES["host"])]
        policy = QSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        self.setAccessibleName(tr("What the squares mean"))
        about = tr("A pattern tells what state a page is in, its colour which chat it belongs to.")
        self.setToolTip(
            tip("\n".join([about, *(f"{STATE_TITLES[state]}: {MEANINGS[state]}" for state in PAGE_STATES)]))
        )

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        return self._places(width)[-1].bottom() + 1

    def sizeHint(self) -> QSize:
        return QSize(200, self.heightForWidth(max(120, self.width())))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setLayoutDirection(TO_THE_RIGHT)
        painter.setFont(self._theme.ui_font(SECTION_PX))
        painter.setPen(self._theme.color("mute"))
        ratio = self.devicePixelRatioF()
        side = round(TILE * ratio)
        drawn, colors = tiles.tiles(side), tiles.palette(self._theme)
        for (state, title), place in zip(self._entries, self._places(self.width()), strict=True):
            tile = drawn[int(tiles.code(state, NO_OWNER))].copy()
            image = QImage(tile.data, side, side, side, QImage.Format.Format_Indexed8)
            image.setColorTable(colors)
            image.setDevicePixelRatio(ratio)
            painter.drawImage(place.left(), place.center().y() - TILE // 2 + 1, image)
            painter.drawText(place.adjusted(TILE + 3, 0, 0, 0), Qt.AlignmentFlag.AlignVCenter, title)

    def _places(self, width: int) -> list[QRect]:
        metrics = QFontMetrics(self._theme.ui_font(SECTION_PX))
        line = max(LINE_PX, self._theme.px(LINE_PX))
        places, x, y = [], 0, 0
        for _, title in self._entries:
            wide = TILE + 3 + metrics.horizontalAdvance(title) + 2
            if x and x + wide > width:
                x, y = 0, y + line
            places.append(QRect(x, y, wide, line))
            x += wide + GAP
        return places


def chats_text(owned: dict[str, int], current: str, hues: ChatHues, theme: Theme, name: Callable[[str], str]) -> str:
    """Rich text: the chats with the most pages, a square in its hue before each; the one on screen in bold."""
    shown: Sequence[str] = list(owned)[:MOST_CHATS]
    parts = []
    for chat in shown:
        color = theme.chat_hues[hues.of(chat) - 1]
        title = escape(_short(name(chat)))
        title = f"<b>{title}</b>" if chat == current else title
        parts.append(f'<span style="color:{color}">■</span>&nbsp;{title}&nbsp;{figure(owned[chat])}')  # not shown
    more = len(owned) - len(shown)
    return " &nbsp; ".join([*parts, *([tr("and {n} more", n=more)] if more > 0 else [])])


def _short(title: str) -> str:
    return title if len(title) <= MOST_CHARS else title[: MOST_CHARS - 1].rstrip() + "…"
