"""The chart of accepted drafts."""

from __future__ import annotations

from app.charts.axes import BarPlot, Bars
from app.charts.legend import Legend
from app.language import known, tr
from app.plots import words
from app.plots.chart import Chart
from app.proposers import color, proposer
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, fill, tip
from engine.protocol import Acceptance, Telemetry

MOST_SERIES = 4
"""Bars side by side at one position that can still be told apart."""
_LEAST_POSITIONS = 4
_NEVER, _IDLE = tr("No draft yet."), tr("The last answer used no speculation.")
_TIP = tr("Share of drafted tokens that the model accepted, by their position in the draft.")


class AcceptanceChart(Chart):
    """Share of drafts accepted at each position, bars per drafter. What an answer showed stands until the next."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(tr("Acceptance rate by draft position"), theme)
        self._shown: list[Acceptance] = []
        self._new = self._ever = False
        self.title.short = tr("Acceptance rate")
        self._plot = BarPlot(theme)
        self._plot.scale = lambda share: f"{100 * share:.0f} %"
        self._legend = self.small_label()
        self._caption = ElidedLabel(_NEVER, "tiny")
        fill(self.column, (self._plot, 1), self._legend, self._caption)
        self._draw()

    def add(self, frame: Telemetry) -> None:
        if frame.acceptance != self._shown and _tells(frame, self._shown):
            self._shown, self._new = frame.acceptance, True
            self._ever = True

    def refresh(self) -> None:
        if self._new:
            self._new = False
            self._draw()

    def recolour(self) -> None:
        self._plot.recolour()
        self._draw()

    def _draw(self) -> None:
        shown = series(self._shown)
        positions = max([_LEAST_POSITIONS, *(len(one.by_depth) for one in shown)])
        bars = [Bars(list(one.by_depth), color(self.theme, one.proposer)) for one in shown if one.by_depth]
        self._plot.show_bars(bars, positions)
        self.set_figure(words.accepted(shown))
        self._legend.show_entries([Legend(color(self.theme, one.proposer), _name(one)) for one in shown])
        self._legend.setVisible(bool(shown))
        told = [*map(account, self._shown), *filter(None, [reasoning(shown)])]
        self._caption.setText(caption(shown) if self._ever else _NEVER)
        self.setToolTip(tip("\n".join([*told, _TIP])))
        self.setAccessibleDescription("\n".join([*told, self._caption.text()]))


def _tells(frame: Telemetry, shown: list[Acceptance]) -> bool:
    """True if a frame is to take the place of what is shown.

    After an answer its steps leave the engine's figures one by one; while another decodes without speculation, there
    is nothing to show of it.
    """
    if frame.acceptance:
        return frame.queue.running > 0 or _proposed(frame.acceptance) >= _proposed(shown)
    return frame.queue.running > 0 and frame.latency.itl_p50_ms is not None


def _proposed(acceptance: list[Acceptance]) -> int:
    return sum(one.proposed for one in acceptance)


def series(acceptance: list[Acceptance]) -> list[Acceptance]:
    """Series to show, with the most drafts first; one that is off and drafted nothing lately comes last."""
    return sorted(acceptance, key=lambda one: (bool(one.by_depth), one.proposed), reverse=True)[:MOST_SERIES]


def caption(shown: list[Acceptance]) -> str:
    """One short line: what was accepted and what it gave; or why nothing is drafted."""
    if not shown:
        return _IDLE
    if all(one.off_reason for one in shown):
        return tr("Off: {reason}", reason=shown[0].off_reason)
    tokens = words.per_step(shown)
    parts = [tr("{share} accepted", share=words.accepted(shown))] if _proposed(shown) else []
    return " · ".join([*parts, *([words.tokens_per_step(tokens)] if tokens is not None else [])])


def reasoning(shown: list[Acceptance]) -> str:
    """Reasoning of the controller about the proposers that draft now, else their draft length; "" if none drafts."""
    going = [one for one in shown if not one.off_reason]
    if not going:
        return ""
    said = next((one.reasoning for one in going if one.reasoning), "")
    if said:
        return said
    first = going[0]
    ahead, nodes = first.draft_length, first.tree_nodes
    if nodes > ahead:
        return tr("Drafts {n} tokens ahead, {nodes} drafted tokens per step", n=ahead, nodes=nodes)
    return tr("Drafts {n} tokens ahead", n=ahead)


def account(one: Acceptance) -> str:
    """Everything about one drafter, for the tooltip."""
    who, accepted, drafted = known(proposer(one.proposer).name), one.accepted, one.proposed
    lines = [
        tr("{who}: {accepted:,} of {drafted:,} drafted tokens accepted", who=who, accepted=accepted, drafted=drafted)
    ]
    if one.tokens_per_step > 1:
        lines[0] += f", {words.tokens_per_step(one.tokens_per_step)}"
    if one.by_depth:
        positions = [f"{position}: {100 * share:.0f} %" for position, share in enumerate(one.by_depth, 1)]
        lines.append("    " + tr("by position  {shares}", shares=", ".join(positions)))
    if one.off_reason:
        lines.append("    " + tr("off: {reason}", reason=one.off_reason))
    return "\n".join(lines)


def _name(one: Acceptance) -> str:
    name = known(proposer(one.proposer).name)
    return tr("{name} (off)", name=name) if one.off_reason else name
