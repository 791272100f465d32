"""Share of the memory that a model would take, in the colours of the memory plot."""

from __future__ import annotations

from typing import NamedTuple

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.theme.direction import TO_THE_RIGHT
from app.theme.theme import Theme
from engine.protocol import FitReport

USUAL = 8192
"""Tokens of the chat whose cache is shown (`kvasir models fit` counts the same)."""
_WIDTH, _HEIGHT = 96, 8


class Parts(NamedTuple):
    """Bytes: of weights, a chat's cache, and what else is needed; of them all that may be used."""

    weights: int
    cache: int
    rest: int
    budget: int

    @property
    def needed(self) -> int:
        return self.weights + self.cache + self.rest


def parts_of(report: FitReport) -> Parts | None:
    """None where the report has no figures."""
    fit = report.fit
    if fit is None:
        return None
    cache = min(USUAL, report.longest or USUAL) * report.kinds[0].bytes_per_token if report.kinds else 0.0
    return Parts(fit.weights + fit.draft_weights, round(cache), fit.states + fit.activations, fit.budget)


class FitBar(QWidget):
    """The parts next to each other; the line is where the memory that may be used ends."""

    def __init__(self, theme: Theme, parts: Parts, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setLayoutDirection(TO_THE_RIGHT)
        self._theme, self.parts = theme, parts
        self.setFixedSize(_WIDTH, _HEIGHT)
        theme.changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme, parts = self._theme, self.parts
        painter = QPainter(self)
        painter.setPen(Qt.PenStyle.NoPen)
        whole = QRectF(self.rect()).adjusted(0, 1, 0, -1)
        painter.fillRect(whole, theme.color("raised"))
        scale = whole.width() / max(parts.needed, parts.budget, 1)
        colours = (theme.tokens.accent, theme.tokens.teal, theme.shade("mute", 0.5))
        left = 0.0
        for amount, colour in zip(parts[:3], colours, strict=True):
            width = amount * scale
            painter.fillRect(QRectF(left, whole.top(), width, whole.height()), QColor(colour))
            left += width
        tone = "bad" if parts.needed > parts.budget else "mute"
        end = round(min(parts.budget * scale, whole.width() - 1))
        painter.fillRect(QRectF(end, 0, 1, self.height()), theme.color(tone))
