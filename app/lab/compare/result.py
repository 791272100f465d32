"""Result of a comparison: a table for each kind of text, the texts, quality, and how it was taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.lab.compare import words
from app.lab.figures import Dots
from app.lab.layout import label
from app.lab.steps import StepRunner
from app.lab.words import title as titled
from app.language import known, tr
from app.panel.effects import TONES
from app.panel.verdicts import amount, quality_lines, text_verdict, verdict
from app.texts.difference import parting
from app.texts.side_by_side import MarkedText, Side
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, caption, fill, named
from engine.base.lines import split_lines
from engine.protocol import OptionSpec
from engine.protocol.lab import KindFigures, LabCompared, LabFigure

_CELL_PX, _TITLE_PX, _TEXT_PX = 96, 120, 132
SHOWN = 4
"""Prompts whose texts are shown at first: a large comparison has hundreds."""


class ComparisonView(QWidget):
    """One result. ``specs``: the switches by their keys."""

    def __init__(self, told: LabCompared, specs: Mapping[str, OptionSpec], theme: Theme) -> None:
        super().__init__()
        self.told, self._specs, self._theme = told, specs, theme
        self.setObjectName("compare.result")
        self._names = [f"{letter}  {column.name}" for letter, column in zip(words.LETTERS, told.columns, strict=False)]
        column = fill(QVBoxLayout(self), caption(words.about(told), "compare.about"), margins=0, spacing=12)
        self.rest = StepRunner(self._add_rest(column), self)
        """Makes what stands below."""

    def _add_rest(self, column: QVBoxLayout) -> Iterator[None]:
        told = self.told
        for kind in told.kinds:
            column.addWidget(label(known(kind.kind), "section"))
            card, grid = self._table()
            column.addWidget(card)
            for row, figure in enumerate(kind.figures):
                self._figure(grid, 2 * row + 2, figure)
                yield
            texts = fill(QVBoxLayout(), spacing=12)
            column.addLayout(texts)
            yield from self._add_texts(kind, texts, SHOWN)
            if len(kind.prompts) > SHOWN:
                title = tr("Show all {n:,} prompts", n=len(kind.prompts))
                more = named(QPushButton(title), f"compare.texts.{kind.kind}")
                more.clicked.connect(more.hide)
                more.clicked.connect(partial(self._add_more, kind, texts))
                column.addWidget(more, 0, Qt.AlignmentFlag.AlignLeft)
        quality = quality_lines(told)
        if quality:
            column.addWidget(label(tr("Quality on your text"), "section"))
            for line in quality:
                column.addWidget(label(line, "", "compare.quality"))
        fill(column, label(tr("How it was taken"), "section"), caption(known(told.taken), "compare.taken"))
        for line in told.absent:
            column.addWidget(caption(known(line), "compare.absent"))

    def _table(self) -> tuple[QFrame, QGridLayout]:
        """A row for each figure, a cell for each column, but for the figures."""
        card, grid = _card(len(self._names), self._theme, first=True)
        for place, name in enumerate(self._names):
            grid.addWidget(ElidedLabel(name, "figure"), 0, place + 1)
            grid.addWidget(
                caption(words.about_column(self.told, place, self._specs)), 1, place + 1, Qt.AlignmentFlag.AlignTop
            )
        return card, grid

    def _figure(self, grid: QGridLayout, row: int, figure: LabFigure) -> None:
        metric = figure.effects[0].metric
        every = [value for runs in figure.runs for value in runs]
        low, high = min(every), max(every)
        line = named(QFrame(), edge="top")
        line.setFixedHeight(1)
        grid.addWidget(line, row, 0, 1, grid.columnCount())
        scale = "" if low == high else tr("{low} to {high}", low=amount(low, metric), high=amount(high, metric))
        title = titled(metric)
        grid.addWidget(_stack(label(title, ""), caption(scale)), row + 1, 0, Qt.AlignmentFlag.AlignTop)
        medians = figure.medians
        for place, (median, runs) in enumerate(zip(medians, figure.runs, strict=True)):
            effect = figure.effects[place - 1] if place else None
            remark = caption(known(figure.remark(place)), "compare.remark")
            top = Qt.AlignmentFlag.AlignTop
            if not runs:
                grid.addWidget(_stack(label("–", "mute", "compare.missing"), remark), row + 1, place + 1, top)
                continue
            dots = Dots([runs], [median], metric, self._theme, (low, high), place, amount)
            dots.setAccessibleName(tr("{figure} of {column}", figure=title, column=self._names[place]))
            said = label(verdict(effect), TONES[effect.verdict], "compare.verdict") if effect else caption()
            value = label(amount(median, metric), "figure", "compare.median")
            grid.addWidget(_stack(value, dots, said, remark), row + 1, place + 1, top)

    def _add_texts(self, kind: KindFigures, column: QVBoxLayout, until: int) -> Iterator[None]:
        """Add those of the prompts before ``until`` that are not there yet."""
        for place in range(column.count(), min(until, len(kind.prompts))):
            column.addWidget(self._texts(kind, place, kind.prompts[place]))
            yield

    def _add_more(self, kind: KindFigures, column: QVBoxLayout, *_: object) -> None:
        StepRunner(self._add_texts(kind, column, len(kind.prompts)), self)

    def _texts(self, kind: KindFigures, place: int, prompt: str) -> QWidget:
        """Texts that all columns wrote to one prompt."""
        told = kind.texts[place]
        card, grid = _card(len(self._names), self._theme)
        grid.addWidget(ElidedLabel(tr("“{text}”", text=" ".join(prompt.split())), "caption"), 0, 0, 1, len(self._names))
        written = [told[0].texts[0], *(text.texts[1] for text in told)]
        partings = [parting(written[0], text) for text in written[1:]]
        leaves = [found.at if found is not None else None for found in partings]
        # The first one is marked where any leaves it.
        marks = [min((leave for leave in leaves if leave is not None), default=None), *leaves]
        for at, (name, text, mark) in enumerate(zip(self._names, written, marks, strict=True)):
            grid.addWidget(ElidedLabel(name, "small-figure"), 1, at)
            marked = MarkedText(Side(f"{name}: {split_lines(prompt.strip())[0]}", "", text), mark, self._theme)
            marked.setFixedHeight(self._theme.px(_TEXT_PX))
            marked.setProperty("edge", "all")
            marked.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
            grid.addWidget(marked, 2, at)
            if at:
                tone = words.text_tone(self.told, at - 1, told[at - 1])
                said = label(text_verdict(self.told, at - 1, told[at - 1]), tone, "compare.text")
                grid.addWidget(said, 3, at, Qt.AlignmentFlag.AlignTop)
        return card


def _card(columns: int, theme: Theme, first: bool = False) -> tuple[QFrame, QGridLayout]:
    """A grid of equal columns; with ``first`` next to one of titles."""
    card = named(QFrame(), card="choice")
    grid = fill(QGridLayout(card), margins=(14, 12, 14, 12), spacing=(16, 6))
    if first:
        grid.setColumnMinimumWidth(0, theme.px(_TITLE_PX))
    for at in range(columns):
        grid.setColumnStretch(at + first, 1)
        grid.setColumnMinimumWidth(at + first, theme.px(_CELL_PX))
    return card, grid


def _stack(*widgets: QLabel | QWidget) -> QWidget:
    holder = QWidget()
    column = fill(QVBoxLayout(holder), margins=0, spacing=3)
    for widget in widgets:
        if not isinstance(widget, QLabel) or widget.text():
            column.addWidget(widget)
    return holder
