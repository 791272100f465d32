"""The page map: a square a page, painted at most ten times a second; one can point at a page, click or walk there."""

from __future__ import annotations

import time

from PySide6.QtCore import QEvent, QPoint, QRect, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QEnterEvent, QFocusEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QSizePolicy, QWidget

from app.cache import words
from app.charts.canvas import Canvas
from app.charts.hues import ChatHues
from app.charts.page_states import PageStates
from app.language import tr
from app.theme.direction import TO_THE_RIGHT
from app.theme.theme import Theme
from app.theme.widgets import named

UPDATE_S = 0.1
"""The least time between two repaints."""


class SmallMap(QWidget):
    """The map in a corner of the plots: it does not scroll, several pages may share a square."""

    def __init__(self, theme: Theme, hues: ChatHues, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._canvas = Canvas(theme, hues)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Ignored)
        named(self, title=tr("Page map"), minimumHeight=24)

    @property
    def together(self) -> int:
        """Number of pages that a square stands for."""
        return self._canvas.together

    def show_pages(self, pages: PageStates) -> None:
        self._canvas.show(pages, self.width(), self.height(), grows=False, ratio=self.devicePixelRatioF())
        self.setAccessibleDescription(words.pages_by_state(pages))
        self.update()

    def recolour(self) -> None:
        self._canvas.recolour()
        self.update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._canvas.pages is not None:
            self.show_pages(self._canvas.pages)

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).drawImage(0, 0, self._canvas.image)


class MapBody(QWidget):
    """The squares themselves. ``pointed`` carries the page under the mouse or the keyboard's mark, -1 for none."""

    pointed = Signal(int)
    chosen = Signal(int)

    def __init__(self, theme: Theme, canvas: Canvas, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme, self._canvas = theme, canvas
        self._at = -1
        named(self, mouseTracking=True, focusPolicy=Qt.FocusPolicy.StrongFocus)
        named(self, "page-map", title=tr("Page map"))

    @property
    def at(self) -> int:
        return self._at

    def point(self, page: int) -> None:
        """Mark the page, -1 for none."""
        if page != self._at:
            self._at = page
            self.update()
            self.pointed.emit(page)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self.point(self._under(event.position().toPoint()))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        page = self._under(event.position().toPoint())
        if event.button() == Qt.MouseButton.LeftButton and page >= 0:
            self.chosen.emit(page)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        event.accept()

    def leaveEvent(self, event: QEvent) -> None:
        self.point(-1)

    def enterEvent(self, event: QEnterEvent) -> None:
        self.point(self._under(event.position().toPoint()))

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        if event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason) and self._total():
            self.point(0)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.point(-1)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        columns, last = self._canvas.columns, self._total() - 1
        steps: dict[int, int] = {
            Qt.Key.Key_Left: -1,
            Qt.Key.Key_Right: 1,
            Qt.Key.Key_Up: -columns,
            Qt.Key.Key_Down: columns,
            Qt.Key.Key_Home: -last - 1,
            Qt.Key.Key_End: last + 1,
        }
        if event.key() in steps and last >= 0:
            self.point(max(0, min(self._at + steps[event.key()], last)))
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space) and self._at >= 0:
            self.chosen.emit(self._at)
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.drawImage(0, 0, self._canvas.image)
        if 0 <= self._at < self._total():
            painter.setPen(QPen(self._theme.color("text"), 1))
            painter.drawRect(self._canvas.place(self._at).adjusted(-1, -1, 0, 0))

    def _total(self) -> int:
        return self._canvas.pages.total if self._canvas.pages is not None else 0

    def _under(self, at: QPoint) -> int:
        page = self._canvas.page_at(at.x(), at.y())
        return -1 if page is None else page


class PageMapView(QScrollArea):
    """Scrolls where squares of three pixels do not fit. Maps that come faster than ten a second are skipped."""

    def __init__(self, theme: Theme, hues: ChatHues, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._canvas = Canvas(theme, hues)
        self._theme = theme
        self._next: PageStates | None = None
        self._painted = 0.0
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setLayoutDirection(TO_THE_RIGHT)
        named(self, horizontalScrollBarPolicy=Qt.ScrollBarPolicy.ScrollBarAlwaysOff, focusPolicy=Qt.FocusPolicy.NoFocus)
        self.setMinimumSize(QSize(120, 60))
        self.body = MapBody(theme, self._canvas, self)
        self.setWidget(self.body)
        self.body.pointed.connect(self._keep_in_sight)
        self._timer = named(QTimer(self, singleShot=True), "page-map-update")
        self._timer.timeout.connect(self._show_next)

    @property
    def pages(self) -> PageStates | None:
        """The pages on show."""
        return self._canvas.pages

    def show_pages(self, pages: PageStates) -> None:
        """Show this map now, or as soon as a tenth of a second has passed since the last."""
        self._next = pages
        if not self._timer.isActive():
            wait = self._painted + UPDATE_S - time.monotonic()
            if wait > 0:
                self._timer.start(round(1000 * wait) + 1)
            else:
                self._show_next()

    def stop(self) -> None:
        self._timer.stop()

    def place(self, page: int) -> QRect:
        """Rectangle of the page, in this widget's coordinates."""
        return self._canvas.place(page).translated(self.body.pos())

    def recolour(self) -> None:
        self._canvas.recolour()
        self.body.update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._canvas.pages is not None:
            self._draw(self._canvas.pages)

    def _show_next(self) -> None:
        if self._next is not None:
            pages, self._next = self._next, None
            self._painted = time.monotonic()
            self._draw(pages)

    def _draw(self, pages: PageStates) -> None:
        # The bar's room is kept free, so that its coming and going does not move every square.
        width = self.width() - self.verticalScrollBar().sizeHint().width()
        self._canvas.show(pages, width, self.height(), grows=True, ratio=self.devicePixelRatioF())
        self.body.setAccessibleDescription(words.pages_by_state(pages))
        self.body.resize(width, max(1, self._canvas.height))
        self.body.update()

    def _keep_in_sight(self, page: int) -> None:
        if page >= 0 and self.body.hasFocus():
            center = self._canvas.place(page).center()
            self.ensureVisible(center.x(), center.y(), 8, 8)
