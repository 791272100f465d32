"""Base of all charts: a head with title and live figure, the drawing below it, and a line of small text."""

from __future__ import annotations

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.charts.axes import SPAN, Curve, TimePlot
from app.charts.figure import Figure
from app.charts.legend import LegendLabel
from app.plots.ring import Ring
from app.theme.direction import TO_THE_RIGHT
from app.theme.sheet import set_role
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, fill, named
from engine.protocol import Telemetry

POINTS = 600
MAX_MARKS = 6
NARROW_PX = 180
MARGIN_PX, NARROW_MARGIN_PX = 14, 10
LEAST_PX = 150
"""Width of a chart below which its words would not stand next to each other; the strip is scrolled then."""


class Chart(QWidget):
    """A head and a body. Subclasses take frames in with ``add`` (cheap) and paint them in ``refresh``."""

    def __init__(self, title: str, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        named(self, title=title)
        self.setLayoutDirection(TO_THE_RIGHT)
        self.title = ElidedLabel(title, "caption")
        self.figure = Figure("–", "figure")
        self.narrow = False
        self.head = fill(QHBoxLayout(), (self.title, 1), self.figure)
        self.column = fill(QVBoxLayout(self), self.head, margins=(MARGIN_PX, 10, MARGIN_PX, 8), spacing=4)
        theme.changed.connect(self._fit)
        self._fit()

    def add(self, frame: Telemetry) -> None:
        raise NotImplementedError

    def refresh(self) -> None:
        raise NotImplementedError

    def recolour(self) -> None:
        """The theme changed."""

    def mark(self, label: str) -> None:
        """An event happened at the time of the newest frame."""

    def _fit(self) -> None:
        self.setMinimumWidth(self.theme.px(LEAST_PX))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """On a narrow chart the figure is smaller rather than cut."""
        super().resizeEvent(event)
        if (narrow := event.size().width() < self.theme.px(NARROW_PX)) != self.narrow:
            self.narrow = narrow
            set_role(self.figure, "small-figure" if narrow else "figure")
            side = NARROW_MARGIN_PX if narrow else MARGIN_PX
            self.column.setContentsMargins(side, 10, side, 8)

    def set_figure(self, text: str, short: str = "") -> None:
        """``short`` is shown where the whole figure leaves the title no room."""
        text = short if short and self.room_for(text) < 0 else text
        if text != self.figure.text():
            self.figure.setText(text)

    def room_for(self, figure: str) -> int:
        """Pixels that the head has left beside this figure and a title as short as it may be; negative if none."""
        margins = self.column.contentsMargins()
        taken = margins.left() + margins.right() + (self.head.count() - 1) * self.head.spacing()
        taken += self.title.fontMetrics().horizontalAdvance(self.title.short or self.title.text()) + 1  # rounded off
        wide, shown = self.figure.fontMetrics().horizontalAdvance, self.figure.text()
        return self.width() - taken - (self.figure.sizeHint().width() - wide(shown) + wide(figure))

    def small_label(self) -> LegendLabel:
        """A line of rich text below the plot that never widens its chart: the five share the width evenly."""
        return LegendLabel(self.theme)


class Marks:
    """Events of the last minute, at most :data:`MAX_MARKS`: (time, label), the oldest first."""

    def __init__(self) -> None:
        self._live: list[tuple[float, str]] = []

    def add(self, time: float, label: str) -> None:
        self._live = [*self._live, (time, label)][-MAX_MARKS:]

    def ages(self, now: float) -> list[tuple[float, str]]:
        """Their ages, negative; those older than the axis, or of another engine's clock, go."""
        self._live = [(time, label) for time, label in self._live if -SPAN <= time - now <= 1.0]
        return [(time - now, label) for time, label in self._live]

    def __len__(self) -> int:
        return len(self._live)


class TimeChart(Chart):
    """Curves over the last minute: subclasses say which values a frame has, and how they are drawn."""

    def __init__(self, title: str, theme: Theme, curves: list[Curve]) -> None:
        super().__init__(title, theme)
        self._ring = Ring(POINTS, len(curves))
        self._frame: Telemetry | None = None
        self._curves = curves
        self._marks = Marks()
        self._plot = TimePlot(theme, curves)
        self.column.addWidget(self._plot, 1)

    def values(self, frame: Telemetry) -> tuple[float, ...]:
        """One for each curve."""
        raise NotImplementedError

    def draw(self, frame: Telemetry) -> None:
        """Give the curves their points and the texts their words."""
        raise NotImplementedError

    def add(self, frame: Telemetry) -> None:
        self._ring.append(frame.time, self.values(frame))
        self._frame = frame

    def mark(self, label: str) -> None:
        if len(self._ring):
            self._marks.add(self._ring.last, label)

    def refresh(self) -> None:
        if self._frame is not None:
            self.draw(self._frame)
            self._plot.marks = self._marks.ages(self._ring.last)
            self._plot.update()

    def recolour(self) -> None:
        self._plot.recolour()
        for curve, color in zip(self._curves, self.colors(), strict=True):
            curve.color = color

    def colors(self) -> list[str]:
        """One for each curve, as ``#rrggbb``."""
        raise NotImplementedError
