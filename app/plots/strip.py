"""The plot strip at the window's foot: five charts and one of the GPU, or one line of figures.

It rests when nothing moves in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QStackedLayout, QWidget

from app.charts.hues import ChatHues
from app.language import tr
from app.plots import words
from app.plots.status import StatusLine
from app.theme.room import scrolling
from app.theme.theme import Theme
from app.theme.widgets import fill, named
from engine.protocol import GpuReading, MemoryByOwner, QueueCounts, Telemetry

if TYPE_CHECKING:
    from app.charts.page_states import PageStates
    from app.plots.chart import Chart
    from app.plots.pages import PagesChart

HEIGHT = 188
COLLAPSED_HEIGHT = 30
HEIGHTS = {False: HEIGHT, True: COLLAPSED_HEIGHT}
"""The strip's height by whether it is collapsed, pixels at the usual text size."""
SPAN_S = 60.0
"""Seconds that the charts reach back; older differences cannot be seen."""
STILL = 0.005
"""Share of all memory by which an owner's part moves while nothing happens."""
STILL_GPU = {"watts": 8.0, "celsius": 2.0, "core_mhz": 60.0}
"""By how much a GPU's figures move while nothing happens."""
_TICK_MS = 200
"""About as long as the charts take to move by a pixel."""
_BUILD_MS = 60


def still(frame: Telemetry, before: Telemetry) -> bool:
    """True if two frames look alike: their times differ, and memory and the GPU by as much as they do by themselves."""
    if msgspec.structs.replace(frame, time=before.time, memory=before.memory, gpu=before.gpu) != before:
        return False
    if not _gpu_still(frame.gpu, before.gpu):
        return False
    now, then = frame.memory, before.memory
    slack = STILL * max(1, now.total if now.scope == "device" else words.kvasir_bytes(now))
    return now.scope == then.scope and all(
        abs(a - b) <= slack for a, b in zip(_owners(now), _owners(then), strict=True)
    )


def _gpu_still(now: GpuReading | None, before: GpuReading | None) -> bool:
    if now is None or before is None:
        return now is before
    pairs = ((getattr(now, field), getattr(before, field), slack) for field, slack in STILL_GPU.items())
    return all(abs(a - b) <= slack if None not in (a, b) else a is b for a, b, slack in pairs)


def _owners(memory: MemoryByOwner) -> tuple[int, ...]:
    others = memory.other_programs if memory.scope == "device" else 0
    return memory.weights, memory.kv_used, memory.kv_reserved, memory.other_kvasir, others


def ended(frame: Telemetry) -> Telemetry:
    """Return the telemetry that holds when the engine that sent the frame is gone."""
    nothing = dict.fromkeys(("weights", "kv_used", "kv_reserved", "other_kvasir"), 0)
    return Telemetry(
        time=frame.time,
        generated_per_second=0,
        prefilled_per_second=0,
        memory=msgspec.structs.replace(frame.memory, **nothing),
        pages=msgspec.structs.replace(frame.pages, used=0, cached=0, live_tokens=0),
        queue=QueueCounts(waiting=0, running=0, prefilling=0),
        gpu=frame.gpu,
    )


class PlotStrip(QWidget):
    """Takes in telemetry frames and paints the newest state at most five times a second while it can be seen.

    No timer runs between frames; once they have all looked alike for as long as the charts reach back, none is painted.
    The charts (and with them numpy) are made shortly after the strip is first shown, so that the window appears before
    them; frames until then are kept.
    """

    watched = Signal(bool)
    """True if the charts can be seen."""
    plots_requested = Signal()
    panel_requested = Signal()
    """A click on the line of figures."""
    why_requested = Signal(object)
    """The button that asks why this is slow."""
    chat_requested = Signal(str)
    """A click on an answer of this chat."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.hues = ChatHues()
        self._pages: PagesChart | None = None
        self._charts: list[Chart] = []
        self._gpu: list[QWidget] = []
        """The chart of the GPU, and the line on its left."""
        self._early: list[Telemetry] = []
        self._frame: Telemetry | None = None
        self._moved: Telemetry | None = None
        """The last frame that looked unlike the one that stood here before."""
        self._dirty = self._seen = self._flat = self._collapsed = False
        named(self, "plots", title=tr("Live plots"), surface="panel")
        self._row = QWidget()
        self._row_layout = fill(QHBoxLayout(self._row), margins=0, spacing=0)
        self._line = StatusLine()
        self._line.plots_requested.connect(self.plots_requested)
        self._line.panel_requested.connect(self.panel_requested)
        self._line.why.asked.connect(self.why_requested)
        self._area = scrolling(self._row, sideways=True)
        self._area.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._stack = QStackedLayout(self)
        fill(self._stack, self._area, self._line)
        self._soon = QTimer(self, singleShot=True, interval=_TICK_MS)
        self._soon.timeout.connect(self.tick)
        self._builder = QTimer(self, singleShot=True, interval=_BUILD_MS)
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
        """True if nobody can see it."""
        return not self._seen

    @property
    def line_height(self) -> int:
        """Pixels of the strip while it is collapsed."""
        return self._height(True)

    @property
    def open_height(self) -> int:
        """Pixels of the strip with its charts."""
        return self._height(False)

    def set_collapsed(self, collapsed: bool) -> None:
        """One line of figures instead of the charts."""
        self._collapsed = collapsed
        self._set_height()
        self._stack.setCurrentWidget(self._line if collapsed else self._area)
        self._touch()
        self.tick()
        self.watched.emit(not collapsed and self._seen)

    def add(self, frame: Telemetry) -> None:
        """Take in one frame. Cheap, also while hidden: painting happens a moment later."""
        if self._moved is None or frame.time < self._moved.time or not still(frame, self._moved):
            self._moved = frame
        self._frame = frame
        if not self._charts:
            self._early = [*self._early[-599:], frame]
        for chart in self._charts:
            chart.add(frame)
        self._show_gpu(frame)
        was_flat, self._flat = self._flat, frame.time - self._moved.time > SPAN_S
        if not (was_flat and self._flat):
            self._touch()

    def end(self) -> None:
        """The engine is gone: nothing runs in it, and it holds no memory."""
        if self._frame is not None:
            self.add(ended(self._frame))

    def show_map(self, pages: PageStates) -> None:
        """The state of every page, for the chart of the pool."""
        if self._pages is not None:
            self._pages.show_map(pages)
            self._touch()

    def forget_map(self) -> None:
        """The last map is of a pool that is gone."""
        if self._pages is not None:
            self._pages.forget_map()

    def mark(self, label: str) -> None:
        """A dashed line at the newest frame, with a short label."""
        for chart in self._charts:
            chart.mark(label)
        self._moved = self._frame
        self._touch()

    def tick(self) -> None:
        """Paint what came since the last time."""
        if not self._dirty or not self._seen:
            return
        self._dirty = False
        if self._collapsed:
            self._line.show_frame(self._frame)
            return
        for chart in self._charts:
            chart.refresh()

    def build(self) -> None:
        """Make the charts now."""
        self._builder.stop()
        if self._charts:
            return
        from app.plots.acceptance import AcceptanceChart
        from app.plots.charts import GpuChart, MemoryChart, RateChart
        from app.plots.pages import PagesChart
        from app.plots.timeline import TimelineChart

        theme, self._pages = self._theme, PagesChart(self._theme, self.hues)
        rates = RateChart(theme)
        rates.why.asked.connect(self.why_requested)
        timeline = TimelineChart(theme)
        timeline.chat_requested.connect(self.chat_requested)
        made: list[Chart] = [rates, MemoryChart(theme), self._pages, timeline]
        for chart in (*made, AcceptanceChart(theme), GpuChart(theme)):
            chart.setObjectName(f"plots.{type(chart).__name__}")
            divider = named(QFrame(), edge="left")
            divider.setFixedWidth(1)
            if self._charts:
                self._row_layout.addWidget(divider)
            self._row_layout.addWidget(chart, 1)
            self._charts.append(chart)
            self._gpu = [divider, chart]  # the last one
        early, self._early = self._early, []
        for frame in early:
            for chart in self._charts:
                chart.add(frame)
        self._show_gpu(early[-1] if early else None)
        self._touch()

    def _show_gpu(self, frame: Telemetry | None) -> None:
        """The chart of the GPU, where its driver says something."""
        for part in self._gpu:
            part.setVisible(frame is not None and frame.gpu is not None)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._seen = True
        if not self._charts:
            self._builder.start()
        self._touch()
        self.watched.emit(not self._collapsed)

    def hideEvent(self, event: QHideEvent) -> None:
        """Also when the window is minimised, which leaves isVisible true."""
        super().hideEvent(event)
        self._seen = False
        self._soon.stop()
        self._builder.stop()
        self.watched.emit(False)

    def _touch(self) -> None:
        """Something is to be painted."""
        self._dirty = True
        if self._seen and not self._soon.isActive():
            self._soon.start()

    def _set_height(self) -> None:
        self.setFixedHeight(self._height(self._collapsed))

    def _height(self, collapsed: bool) -> int:
        return max(HEIGHTS[collapsed], self._theme.px(HEIGHTS[collapsed]))

    def _recolour(self) -> None:
        self._set_height()
        for chart in self._charts:
            chart.recolour()
        self._touch()
