"""The chart of accepted guesses."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg

from app.plots import words
from app.plots.chart import Chart, Legend, Plot
from app.theme.theme import Theme
from engine.protocol import Acceptance, Telemetry

_PROPOSER_TOKENS = {"draft": "good", "ngram": "teal"}


class AcceptanceChart(Chart):
    """Share of guesses accepted at each depth, bars per proposer; why speculation is off, when it is."""

    def __init__(self, theme: Theme) -> None:
        super().__init__("Accepted by depth", theme)
        self._shown: list[Acceptance] = []
        self._frame: Telemetry | None = None
        self._plot = Plot(theme, 0.4, 4.6)
        self._plot.set_top(1.0)
        self._bars: list[pg.BarGraphItem] = []
        self._caption = self.small_label()
        self._caption.setWordWrap(True)
        self.column.addWidget(self._plot, 1)
        self.column.addWidget(self._caption)

    def add(self, frame: Telemetry) -> None:
        self._frame = frame

    def refresh(self) -> None:
        if self._frame is None or self._frame.acceptance == self._shown:
            return
        self._shown = self._frame.acceptance
        self._draw()

    def recolour(self) -> None:
        self._plot.recolour()
        self._draw()

    def _draw(self) -> None:
        shown = self._shown
        self.set_figure(words.accepted(shown))
        depth = max([4, *(len(one.by_depth) for one in shown)])
        self._plot.box.setXRange(0.4, depth + 0.6, padding=0)
        while len(self._bars) < len(shown):
            self._bars.append(pg.BarGraphItem(x=[0], height=[0], width=0.1))
            self._plot.box.addItem(self._bars[-1])
        width = 0.62 / max(1, len(shown))
        for index, bars in enumerate(self._bars):
            bars.setVisible(index < len(shown) and bool(shown[index].by_depth))
            if index < len(shown) and shown[index].by_depth:
                self._set_bars(bars, shown[index], width, (index - (len(shown) - 1) / 2) * width)
        self._say(shown)

    def _set_bars(self, bars: pg.BarGraphItem, one: Acceptance, width: float, shift: float) -> None:
        at = np.arange(1, len(one.by_depth) + 1) + shift
        color = self._color(one.proposer)
        bars.setOpts(x=at, height=np.asarray(one.by_depth), width=width, pen=pg.mkPen(None), brush=color)

    def _color(self, proposer: str) -> str:
        return str(getattr(self.theme.tokens, _PROPOSER_TOKENS.get(proposer, "accent")))

    def _say(self, shown: list[Acceptance]) -> None:
        parts = [
            Legend(self._color(one.proposer), f"{one.proposer}: {one.off_reason or f'{one.draft_length} ahead'}")
            for one in shown
        ]
        self._caption.setText(self.legend_text(parts) if parts else "Speculation is off or idle.")
        tip = "\n".join(f"{one.proposer}: {one.accepted:,} of {one.proposed:,} guesses accepted" for one in shown)
        self.setToolTip(tip or "Share of guessed tokens that the model accepted, by how far ahead they were.")
