"""The plot strip at the window's foot: five charts, one timer, paused when nobody sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QSizePolicy, QStackedLayout, QWidget

from app.cache.hues import ChatHues
from app.plots import words
from app.theme.theme import Theme
from engine.protocol import Telemetry

if TYPE_CHECKING:
    from app.cache.pages import Pages
    from app.plots.chart import Chart
    from app.plots.pages import PagesChart

HEIGHT = 188
COLLAPSED_HEIGHT = 30
HEIGHTS = {False: HEIGHT, True: COLLAPSED_HEIGHT}
"""By whether it is collapsed, pixels at the usual text size."""
_TICK_MS = 45
_BUILD_MS = 60


class PlotStrip(QWidget):
    """Takes in telemetry frames and paints the newest state at most 22 times a second while visible.

    The charts (and with them numpy and pyqtgraph) are made shortly after the strip is first shown, so that the window
    appears before them; frames until then are kept.
    """

    watched = Signal(bool)
    """Whether the charts can be seen."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.hues = ChatHues()
        self._pages: PagesChart | None = None
        self._charts: list[Chart] = []
        self._early: list[Telemetry] = []
        self._frame: Telemetry | None = None
        self._dirty = False
        self._collapsed = False
        self.setObjectName("plots")
        self.setAccessibleName("Live plots")
        self.setProperty("surface", "panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._row = QWidget()
        self._row_layout = QHBoxLayout(self._row)
        self._row_layout.setContentsMargins(0, 0, 0, 0)
        self._row_layout.setSpacing(0)
        self._line = QLabel("Live figures appear when the engine is ready.")
        self._line.setProperty("role", "caption")
        self._line.setObjectName("plots.line")
        self._line.setContentsMargins(16, 0, 16, 0)
        self._line.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._stack = QStackedLayout(self)
        self._stack.addWidget(self._row)
        self._stack.addWidget(self._line)
        self._timer = QTimer(self)
        self._timer.setInterval(_TICK_MS)
        self._timer.timeout.connect(self.tick)
        self._builder = QTimer(self)
        self._builder.setSingleShot(True)
        self._builder.setInterval(_BUILD_MS)
        self._builder.timeout.connect(self.build)
        self.set_collapsed(False)
        theme.changed.connect(self._recolour)

    @property
    def collapsed(self) -> bool:
        return self._collapsed

    @property
    def charts(self) -> list[Chart]:
        """Empty until the strip has been shown."""
        return self._charts

    @property
    def paused(self) -> bool:
        return not self._timer.isActive()

    def set_collapsed(self, collapsed: bool) -> None:
        """One line of figures instead of the charts."""
        self._collapsed = collapsed
        self._set_height()
        self._stack.setCurrentWidget(self._line if collapsed else self._row)
        self._dirty = True
        self.tick()
        self.watched.emit(not collapsed and self.isVisible())

    def add(self, frame: Telemetry) -> None:
        """Take in one frame. Cheap, also while hidden: painting happens on the timer."""
        self._frame = frame
        self._dirty = True
        if not self._charts:
            self._early = [*self._early[-599:], frame]
        for chart in self._charts:
            chart.add(frame)

    def show_map(self, pages: Pages) -> None:
        """The state of every page, for the chart of the pool."""
        if self._pages is not None:
            self._pages.show_map(pages)
            self._dirty = True

    def forget_map(self) -> None:
        """The last map is of a pool that is gone."""
        if self._pages is not None:
            self._pages.forget_map()

    def mark(self, label: str) -> None:
        """A dashed line at the newest frame, with a label of two words."""
        for chart in self._charts:
            chart.mark(label)
        self._dirty = True

    def tick(self) -> None:
        """Paint what came since the last tick."""
        if not self._dirty or not self.isVisible():
            return
        self._dirty = False
        if self._collapsed:
            if self._frame is not None:
                self._line.setText(words.one_line(self._frame))
            return
        for chart in self._charts:
            chart.refresh()

    def build(self) -> None:
        """Make the charts now."""
        if self._charts:
            return
        from app.plots.acceptance import AcceptanceChart
        from app.plots.charts import MemoryChart, QueueChart, RateChart
        from app.plots.pages import PagesChart

        theme, self._pages = self._theme, PagesChart(self._theme, self.hues)
        charts = (RateChart(theme), MemoryChart(theme), self._pages, QueueChart(theme), AcceptanceChart(theme))
        for index, chart in enumerate(charts):
            chart.setObjectName(f"plots.{type(chart).__name__}")
            if index:
                divider = QFrame()
                divider.setProperty("edge", "left")
                divider.setFixedWidth(1)
                self._row_layout.addWidget(divider)
            self._row_layout.addWidget(chart, 1)
            self._charts.append(chart)
        early, self._early = self._early, []
        for frame in early:
            for chart in self._charts:
                chart.add(frame)
        self._dirty = True

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._timer.start()
        if not self._charts:
            self._builder.start()
        self.watched.emit(not self._collapsed)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._timer.stop()
        self._builder.stop()
        self.watched.emit(False)

    def _set_height(self) -> None:
        self.setFixedHeight(max(HEIGHTS[self._collapsed], self._theme.px(HEIGHTS[self._collapsed])))

    def _recolour(self) -> None:
        self._set_height()
        for chart in self._charts:
            chart.recolour()
        self._dirty = True
