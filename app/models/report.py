"""The page of a model that Kvasir made: what was won and lost, as it was measured."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.language import tr
from app.models import make_words
from app.models.rows import back_button
from app.theme.room import scrolling
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, FillBar, FocusFirst, caption, fill, named
from engine.protocol import MakeReport

_MEANINGS = tr(
    "Perplexity: how surprised a model is by the text; lower is better. KL divergence: how far the probabilities of "
    "the next token are from the original's; 0 is no difference. Same top token: how often both pick the same token "
    "first. Compare, in the Lab, tells how much faster it writes, in pairs of runs."
)
_WORST = tr(
    "How far a layer's outputs on the calibration text are from the original's, as a share of them (sums of squares), "
    "the worst layer first; and how far they would be had each weight only been rounded to the nearest level."
)
_OURS, _ROUNDED = "accent", "mute"
"""The colours of the bars."""
_NOTHING_CALIBRATED = tr("This format is made without a calibration text, so no layer's error was measured by itself.")


class ReportPage(FocusFirst):
    """``load_asked`` carries the path of the model."""

    load_asked = Signal(str)
    closed = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("models.report")
        self._theme = theme
        self._path = self._loaded = ""
        back = back_button("models.report.back")
        back.clicked.connect(self.closed)
        self.first = back
        self.title = ElidedLabel("", "figure")
        self.load = named(
            QPushButton(tr("Load")),
            "models.report.load",
            clicked=lambda: self.load_asked.emit(self._path),
            kind="primary",
        )
        head = fill(QHBoxLayout(), back, (self.title, 1), self.load, spacing=8)
        self._scroll = scrolling(title=tr("Report"))
        fill(QVBoxLayout(self), head, (self._scroll, 1), margins=0, spacing=8)

    def set_loaded(self, path: str) -> None:
        """The path of the model that is loaded, "" for none."""
        self._loaded = path
        here = bool(path) and self._path == path
        self.load.setEnabled(not here)
        self.load.setToolTip(tr("It is loaded.") if here else "")

    def show_report(self, path: str, report: MakeReport) -> None:
        """``path``: where the model lies now."""
        self._path = path
        self.title.setText(report.name)
        self.load.setAccessibleName(tr("Load {name}", name=report.name))
        inside = QWidget()
        column = fill(QVBoxLayout(inside), margins=(0, 0, 6, 0), spacing=12)
        summary = QLabel(make_words.summary(report))
        summary.setObjectName("models.report.summary")
        named(summary, wordWrap=True, textInteractionFlags=Qt.TextInteractionFlag.TextSelectableByMouse)
        column.addWidget(caption(make_words.about(report), "models.report.about"))
        fill(column, summary, _figures(report), self._layers(report), 1)
        self._scroll.setWidget(inside)
        self.set_loaded(self._loaded)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.closed.emit()
        else:
            super().keyPressEvent(event)

    def _layers(self, report: MakeReport) -> QWidget:
        """A pair of bars for each of the worst layers: as it is, and as rounding alone would have left it."""
        card, grid = _card()
        head = named(QLabel(tr("Worst layers")), role="section")
        grid.addWidget(head, 0, 0, 1, 2)
        if not report.worst:
            grid.addWidget(caption(_NOTHING_CALIBRATED, "models.report.nothing"), 1, 0, 1, 2)
            return card
        grid.setColumnStretch(1, 1)
        method = make_words.title(report.to)
        for column, (token, text) in enumerate(((_OURS, method), (_ROUNDED, tr("rounded"))), 2):
            grid.addWidget(self._legend(token, text), 0, column, Qt.AlignmentFlag.AlignRight)
        most = max(max(each.error, each.rounded) for each in report.worst) or 1.0
        for row, layer in enumerate(report.worst, 1):
            error, rounded = make_words.percent(layer.error), make_words.percent(layer.rounded)
            title = tr(
                "{name}: {error} by {method}, {rounded} rounded to nearest",
                name=layer.name,
                error=error,
                method=method,
                rounded=rounded,
            )
            bars = named(QWidget(), title=title)
            pair = fill(QVBoxLayout(bars), self._bar(_OURS, layer.error / most), margins=0, spacing=2)
            fill(pair, self._bar(_ROUNDED, layer.rounded / most))
            grid.addWidget(QLabel(layer.name.removeprefix("model.")), row, 0)
            grid.addWidget(bars, row, 1, Qt.AlignmentFlag.AlignVCenter)
            fill(grid, (_right(error, "figure"), row, 2), (_right(rounded, "mute"), row, 3))
        grid.addWidget(caption(_WORST), grid.rowCount(), 0, 1, 4)
        return card

    def _bar(self, token: str, share: float) -> FillBar:
        bar = FillBar(self._theme)
        bar.token, bar.fraction = token, share
        return bar

    def _legend(self, token: str, text: str) -> QWidget:
        legend = QWidget()
        row = fill(QHBoxLayout(legend), margins=0, spacing=6)
        swatch = self._bar(token, 1.0)
        swatch.setFixedWidth(12)
        fill(row, swatch, _right(text, "caption"))
        return legend


def _figures(report: MakeReport) -> QWidget:
    """The table: what it was, what it is, and the change."""
    card, grid = _card()
    grid.setColumnStretch(0, 1)
    for column, head in enumerate((tr("original"), make_words.title(report.to), tr("change")), 1):
        grid.addWidget(_right(head, "caption"), 0, column)
    for row, line in enumerate(make_words.figures(report), 1):
        grid.addWidget(QLabel(line.name), row, 0)
        for column, (text, role) in enumerate(
            ((line.before or "–", "mute"), (line.after, "figure"), (line.change, line.tone)), 1
        ):
            grid.addWidget(_right(text, role), row, column)
    grid.addWidget(caption(_MEANINGS), grid.rowCount(), 0, 1, 4)
    return card


def _card() -> tuple[QFrame, QGridLayout]:
    card = named(QFrame(), card="choice")
    grid = fill(QGridLayout(card), margins=(14, 12, 14, 12), spacing=(24, 8))
    return card, grid


def _right(text: str, role: str) -> QLabel:
    return named(QLabel(text, alignment=Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter), role=role)
