"""What all charts share: a head with title and live figure, a plot with three hairlines, dashed event marks."""

from __future__ import annotations

import math
from html import escape
from typing import NamedTuple

import pyqtgraph as pg
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from app.theme.theme import SECTION_PX, Theme
from engine.protocol import Telemetry

SPAN = 60.0
"""Seconds on the time axis."""
POINTS = 600
MAX_MARKS = 6


def nice_ceiling(value: float) -> float:
    """The least of 1, 2, 5 times a power of ten that is at least ``value``; 1 for nothing."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


class Legend(NamedTuple):
    token: str
    text: str


class ElidedLabel(QLabel):
    """One line that ends in an ellipsis where the width ends, and never asks for more of it."""

    def __init__(self, text: str, role: str) -> None:
        super().__init__(text)
        self.setProperty("role", role)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(self.palette().windowText().color())
        text = self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideRight, self.width())
        painter.drawText(self.rect(), Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft, text)


class Chart(QWidget):
    """A head and a body. Subclasses take frames in with ``add`` (cheap) and paint them in ``refresh``."""

    def __init__(self, title: str, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self.setAccessibleName(title)
        self.setMinimumWidth(1)
        self.title = ElidedLabel(title, "caption")
        self.figure = QLabel("–")
        self.figure.setProperty("role", "figure")
        head = QHBoxLayout()
        head.addWidget(self.title, 1)
        head.addWidget(self.figure)
        self.column = QVBoxLayout(self)
        self.column.setContentsMargins(14, 10, 14, 10)
        self.column.setSpacing(6)
        self.column.addLayout(head)

    def add(self, frame: Telemetry) -> None:
        raise NotImplementedError

    def refresh(self) -> None:
        raise NotImplementedError

    def recolour(self) -> None:
        """The theme changed."""

    def mark(self, label: str) -> None:
        """An event happened at the time of the newest frame."""

    def set_figure(self, text: str) -> None:
        if text != self.figure.text():
            self.figure.setText(text)

    def small_label(self, text: str = "") -> QLabel:
        """A line of rich text below the plot that never widens its chart: the five share the width evenly."""
        label = QLabel(text)
        label.setProperty("role", "tiny")
        label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        return label

    def legend_text(self, entries: list[Legend]) -> str:
        """Rich text: a square in the token's colour before each word."""
        tokens = self.theme.tokens
        return "&nbsp; ".join(
            f'<span style="color:{getattr(tokens, color, color)}">■</span>&nbsp;{_whole(text)}'
            for color, text in entries
        )


def _whole(text: str) -> str:
    """A short name is not broken between its words; a sentence is."""
    return escape(text if len(text) > 16 else text.replace(" ", "\xa0"))


class Plot(pg.GraphicsView):
    """A bare view of one coordinate system: x from ``left`` to ``right``, y from 0 to a round number."""

    def __init__(self, theme: Theme, left: float = -SPAN, right: float = 0.0) -> None:
        super().__init__(background=None)
        self._theme = theme
        self._x = (left, right)
        self.box = pg.ViewBox(enableMouse=False, enableMenu=False, defaultPadding=0)
        self.setCentralItem(self.box)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setMinimumHeight(20)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._lines = [pg.InfiniteLine(angle=0, movable=False) for _ in range(3)]
        for line in self._lines:
            line.setZValue(-10)
            self.box.addItem(line, ignoreBounds=True)
        self.top = 0.0
        self.set_top(1.0)
        self.recolour()

    def set_top(self, top: float) -> None:
        """The value at the upper edge; the hairlines stand at its quarters."""
        if top == self.top:
            return
        self.top = top
        self.box.setRange(xRange=self._x, yRange=(0, top), padding=0, disableAutoRange=True)
        for index, line in enumerate(self._lines):
            line.setPos(top * (index + 1) / 4)

    def recolour(self) -> None:
        self.setBackground(self._theme.tokens.panel)
        for line in self._lines:
            line.setPen(pg.mkPen(self._theme.tokens.line, width=1))

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip:
            return False
        return bool(super().viewportEvent(event))


class Marks:
    """Dashed vertical lines with a label, moving left with time; at most :data:`MAX_MARKS` of them."""

    def __init__(self, plot: Plot, theme: Theme) -> None:
        self._plot = plot
        self._theme = theme
        self._live: list[tuple[float, pg.InfiniteLine, pg.TextItem]] = []
        self._made = 0

    def add(self, time: float, label: str) -> None:
        t = self._theme.tokens
        line = pg.InfiniteLine(pen=pg.mkPen(t.mute, width=1, style=Qt.PenStyle.DashLine))
        text = pg.TextItem(label, color=t.mute, anchor=(1, 0))
        text.setFont(self._theme.ui_font(SECTION_PX))
        for item in (line, text):
            self._plot.box.addItem(item, ignoreBounds=True)
        # Every other label hangs a line lower, so that two events close together can both be read.
        text.lowered = 0.14 * (self._made % 2)
        self._made += 1
        self._live.append((time, line, text))
        if len(self._live) > MAX_MARKS:
            self._drop(0)

    def place(self, now: float) -> None:
        """Move all marks to their age; those older than the axis, or of another engine's clock, go."""
        for index in range(len(self._live) - 1, -1, -1):
            time, line, text = self._live[index]
            age = time - now
            if age < -SPAN or age > 1.0:
                self._drop(index)
                continue
            line.setPos(age)
            # The label stands left of its line until there is room on the right.
            text.setAnchor((0, 0) if age < -SPAN / 3 else (1, 0))
            text.setPos(age, self._plot.top * (1 - text.lowered))

    def recolour(self) -> None:
        for _, line, text in self._live:
            line.setPen(pg.mkPen(self._theme.tokens.mute, width=1, style=Qt.PenStyle.DashLine))
            text.setColor(self._theme.tokens.mute)

    def __len__(self) -> int:
        return len(self._live)

    def _drop(self, index: int) -> None:
        _, line, text = self._live.pop(index)
        self._plot.box.removeItem(line)
        self._plot.box.removeItem(text)
