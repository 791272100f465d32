"""The folded plot strip: one line of live figures, which opens the plots and the panel."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QToolButton, QWidget

from app.language import tr
from app.plots import words
from app.plots.why import WhyButton
from app.theme.widgets import ElidedLabel, fill, named, tip
from engine.protocol import Telemetry

_WAITS = tr("Live figures appear when the engine is ready.")
_ABOUT = tr(
    "Tokens written per second (a token is a word or a piece of one), memory, pages of the KV cache, and what the "
    "engine does now. A click shows the plots."
)


class _Figures(ElidedLabel):
    """Each figure whole that there is room for, the first before the others."""

    @property
    def elided(self) -> str:
        shown, *others = self.text().split(words.BETWEEN)
        for each in others:
            longer = f"{shown}{words.BETWEEN}{each}"
            shown = longer if self._cut(longer) == longer else shown
        return self._cut(shown)

    def _cut(self, text: str) -> str:
        return self.fontMetrics().elidedText(text, Qt.TextElideMode.ElideRight, self.width())


class StatusLine(QWidget):
    plots_requested = Signal()
    panel_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._figures = named(_Figures(_WAITS, "caption"), "plots.line", tooltip=tip(_ABOUT))
        self._figures.setCursor(Qt.CursorShape.PointingHandCursor)
        self._figures.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Expanding)
        row = fill(QHBoxLayout(self), (self._figures, 1), margins=(16, 0, 12, 0), spacing=4)
        self.why = WhyButton("plots.why.line")
        row.addWidget(self.why)
        for name, text, about, asked in (
            ("plots", tr("Plots"), tr("Show the plots"), self.plots_requested),
            ("optimisations", tr("Optimisations"), tr("Show or hide the optimisations"), self.panel_requested),
        ):
            button = QToolButton()
            button.setText(text)
            named(button, f"plots.open.{name}", tooltip=tip(about), kind="link")
            button.clicked.connect(asked)
            row.addWidget(button)

    def show_frame(self, frame: Telemetry | None) -> None:
        text = words.one_line(frame) if frame is not None else _WAITS
        if text != self._figures.text():
            self._figures.setText(text)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """The figures are a button too; those next to them take their own clicks."""
        if event.button() == Qt.MouseButton.LeftButton and self.rect().contains(event.position().toPoint()):
            self.plots_requested.emit()
