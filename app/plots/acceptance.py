"""The chart of accepted guesses."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg

from app.plots import words
from app.plots.chart import Chart, ElidedLabel, Legend, Plot
from app.proposers import color, proposer
from app.theme.theme import SECTION_PX, Theme
from engine.protocol import Acceptance, Telemetry

MOST_SERIES = 4
"""Bars side by side at one depth that can still be told apart."""
_LEAST_DEPTH = 4
_MOST_NUMBERS = 8
_FOOT = 0.2
"""Room for the numbers below the bars, in shares of the highest bar there can be."""
_IDLE = "Speculation is off or idle."
_TIP = "Share of guessed tokens that the model kept, by how far ahead they were."


class AcceptanceChart(Chart):
    """Share of guesses accepted at each depth, bars per proposer; the controller's latest line, or why it is off."""

    def __init__(self, theme: Theme) -> None:
        super().__init__("Guesses kept by depth", theme)
        self._shown: list[Acceptance] = []
        self._frame: Telemetry | None = None
        self._plot = Plot(theme, 0.4, _LEAST_DEPTH + 0.6)
        self._plot.set_top(1.0)
        self._depths: list[pg.TextItem] = []
        self._bars: list[pg.BarGraphItem] = []
        self._legend = self.small_label()
        self._legend.setWordWrap(True)
        self._caption = ElidedLabel(_IDLE, "tiny")
        self.column.addWidget(self._plot, 1)
        self.column.addWidget(self._legend)
        self.column.addWidget(self._caption)
        self._say([])

    def add(self, frame: Telemetry) -> None:
        self._frame = frame

    def refresh(self) -> None:
        if self._frame is None or self._frame.acceptance == self._shown:
            return
        self._shown = self._frame.acceptance
        self._draw()

    def recolour(self) -> None:
        self._plot.recolour()
        for label in self._depths:
            label.setColor(self.theme.tokens.mute)
        self._draw()

    def _draw(self) -> None:
        shown = series(self._shown)
        tokens = words.per_step(self._shown)
        self.set_figure(f"{tokens:.1f} tok/step" if tokens is not None else "–")
        depth = max([_LEAST_DEPTH, *(len(one.by_depth) for one in shown)])
        self._number(depth)
        drawn = [one for one in shown if one.by_depth]
        while len(self._bars) < len(drawn):
            self._bars.append(pg.BarGraphItem(x=[0], height=[0], width=0.1))
            self._plot.box.addItem(self._bars[-1])
        width = 0.72 / max(1, len(drawn))
        for index, bars in enumerate(self._bars):
            bars.setVisible(index < len(drawn))
            if index < len(drawn):
                self._set_bars(bars, drawn[index], width, (index - (len(drawn) - 1) / 2) * width)
        self._say(shown)

    def _number(self, depth: int) -> None:
        """Show depths up to this one, with numbers below the bars."""
        if depth == len(self._depths):
            return
        for label in self._depths:
            self._plot.box.removeItem(label)
        self._plot.box.setRange(xRange=(0.4, depth + 0.6), yRange=(-_FOOT, 1), padding=0)
        self._depths = [pg.TextItem("", color=self.theme.tokens.mute, anchor=(0.5, 0)) for _ in range(depth)]
        for number, label in enumerate(self._depths, 1):
            label.setFont(self.theme.ui_font(SECTION_PX - 1))
            label.setText(str(number) if depth <= _MOST_NUMBERS or number % 2 == 0 else "")
            label.setPos(number, 0.03)
            self._plot.box.addItem(label, ignoreBounds=True)

    def _set_bars(self, bars: pg.BarGraphItem, one: Acceptance, width: float, shift: float) -> None:
        at = np.arange(1, len(one.by_depth) + 1) + shift
        brush = color(self.theme, one.proposer)
        bars.setOpts(x=at, height=np.asarray(one.by_depth), width=0.86 * width, pen=pg.mkPen(None), brush=brush)

    def _say(self, shown: list[Acceptance]) -> None:
        self._legend.setText(self.legend_text([Legend(color(self.theme, one.proposer), _name(one)) for one in shown]))
        self._legend.setVisible(bool(shown))
        caption = reasoning(shown)
        self._caption.setText(caption)
        self._caption.setToolTip(caption)
        self.setToolTip("\n".join([*map(account, self._shown), _TIP]))
        self.setAccessibleDescription("\n".join([*map(account, self._shown), caption]))


def series(acceptance: list[Acceptance]) -> list[Acceptance]:
    """Those to show, with the most guesses first; one that is off and guessed nothing lately comes last."""
    return sorted(acceptance, key=lambda one: (bool(one.by_depth), one.proposed), reverse=True)[:MOST_SERIES]


def reasoning(shown: list[Acceptance]) -> str:
    """One line: what the controller says of those that guess now, else how far ahead they go; or why none does."""
    if not shown:
        return _IDLE
    going = [one for one in shown if not one.off_reason]
    if not going:
        return f"Off: {shown[0].off_reason}"
    said = next((one.reasoning for one in going if one.reasoning), "")
    if said:
        return said
    first = going[0]
    tree = f", {first.tree_nodes} guesses a step" if first.tree_nodes > first.draft_length else ""
    return f"Guesses {first.draft_length} ahead{tree}"


def account(one: Acceptance) -> str:
    """Everything about one proposer, for the tooltip."""
    lines = [f"{proposer(one.proposer).name}: {one.accepted:,} of {one.proposed:,} guesses kept"]
    if one.tokens_per_step > 1:
        lines[0] += f", {one.tokens_per_step:.1f} tokens a step"
    if one.by_depth:
        depths = [f"{depth}: {100 * share:.0f} %" for depth, share in enumerate(one.by_depth, 1)]
        lines.append("    by depth  " + ", ".join(depths))
    if one.off_reason:
        lines.append(f"    off: {one.off_reason}")
    return "\n".join(lines)


def _name(one: Acceptance) -> str:
    return proposer(one.proposer).name + (" (off)" if one.off_reason else "")
