"""The chart of the page pool."""

from __future__ import annotations

from PySide6.QtCore import QRectF
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from app.plots import words
from app.plots.chart import Chart, Legend
from app.theme.theme import Theme
from engine.protocol import PageCounts, Telemetry


class PagesBar(QWidget):
    """One bar over all pages: tokens, empty slots in used pages, free pages."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._pages = PageCounts(total=0, used=0, live_tokens=0)
        self.setFixedHeight(28)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Pages in use")

    def set_pages(self, pages: PageCounts) -> None:
        if pages != self._pages:
            self._pages = pages
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        theme, pages = self._theme, self._pages
        painter = QPainter(self)
        area = QRectF(self.rect())
        painter.fillRect(area, theme.color("raised"))
        if not pages.total:
            return
        used = area.width() * pages.used / pages.total
        live = used * (1 - words.waste(pages))
        painter.fillRect(QRectF(0, 0, used, area.height()), theme.color("warn", 0.75))
        painter.fillRect(QRectF(0, 0, live, area.height()), theme.color("teal"))


class PagesChart(Chart):
    """How many pages are taken, and how much of them is empty."""

    def __init__(self, theme: Theme) -> None:
        super().__init__("Pages", theme)
        self._frame: Telemetry | None = None
        self._bar = PagesBar(theme)
        self._lines = [QLabel() for _ in range(3)]
        self.column.addSpacing(8)
        self.column.addWidget(self._bar)
        self.column.addSpacing(4)
        for line in self._lines:
            line.setProperty("role", "caption")
            line.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
            self.column.addWidget(line)
        self.column.addStretch(1)

    def add(self, frame: Telemetry) -> None:
        self._frame = frame

    def refresh(self) -> None:
        if self._frame is None:
            return
        pages = self._frame.pages
        self._bar.set_pages(pages)
        self.set_figure(words.pages(pages))
        empty = pages.used * words.PAGE_TOKENS - pages.live_tokens
        texts = (
            Legend("teal", f"{pages.live_tokens:,} tokens held"),
            Legend("warn", f"{100 * words.waste(pages):.1f} % waste, {empty:,} slots"),
            Legend("line", f"{pages.total - pages.used:,} pages free"),
        )
        for line, text in zip(self._lines, texts, strict=True):
            rich = self.legend_text([text])
            if rich != line.text():
                line.setText(rich)

    def recolour(self) -> None:
        self.refresh()
        self._bar.update()
