"""Compare: the same prompts in columns of any settings, models and quantisations, measured on the engine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QShowEvent
from PySide6.QtWidgets import (
    QFileDialog,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.lab.compare import words
from app.lab.compare.columns import ColumnCards
from app.lab.compare.result import ComparisonView
from app.lab.compare.run import FILES, ComparisonRun, ComparisonWork
from app.language import tr
from app.link.calls import Caller
from app.theme.numbers import WholeNumber
from app.theme.room import scrolling
from app.theme.theme import Theme
from app.theme.widgets import PageTitle, Segments, button_text, caption, fill, named, say, take_out, tip
from engine.protocol.lab import LabCompared, LabProgress

BUILT_IN, CHAT, FILE = "built-in", "chat", "file"
_PROMPTS = {BUILT_IN: tr("Built-in set"), CHAT: tr("This chat's"), FILE: tr("A file")}
_FILTERS = {"html": tr("Web page (*.html)"), "json": tr("Figures (*.json)")}
_NUMBER_PX = 130


class ComparePage(QWidget):
    """``caller`` performs a comparison; None means that none can be made, which is said.

    Whoever puts it into the window tells its ``columns`` the models and the switches, and it the chat's prompts.
    """

    changed = Signal()
    """:attr:`busy` is another."""
    done = Signal()
    shown = Signal()
    """Other servers' models may be others by now."""

    def __init__(self, caller: Caller | None, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        named(self, "compare", surface="bg")
        self._theme = theme
        self._blocked = "" if caller is not None else words.NO_COMPARE
        self._prompts: list[str] = []
        self._source = BUILT_IN
        self._progress = ""
        self._running: list[str] = []
        """Names of the columns that are compared now."""
        self.result: ComparisonView | None = None
        self.comparison = ComparisonRun(caller, self)
        self.comparison.changed.connect(self._refresh)
        self.comparison.changed.connect(self.changed)
        self.comparison.progressed.connect(self._on_progress)
        self.comparison.found.connect(self._on_found)
        self.comparison.ended.connect(self._on_ended)
        self.columns = ColumnCards(theme)
        body = QWidget()
        self._column = fill(QVBoxLayout(body), margins=(24, 16, 24, 24), spacing=12)
        parts = PageTitle(tr("Compare")), caption(words.INTRODUCTION), self.columns, self._work(), self._run_row()
        fill(self._column, *parts)
        self.note = caption(name="compare.note")
        self.note.hide()
        fill(self._column, self.note, self._save_row(), 1)
        self._scroll = scrolling(body, tr("Compare"), sideways=True)
        fill(QVBoxLayout(self), self._scroll, margins=0)
        theme.changed.connect(self._fit)
        self._fit()
        self._choose(BUILT_IN)
        self.set_prompts([])
        self._refresh()

    @property
    def busy(self) -> bool:
        """True while a comparison runs."""
        return self.comparison.running

    def set_prompts(self, prompts: Sequence[str]) -> None:
        """The last messages that the person sent in the chat on screen."""
        self._prompts = list(prompts)
        self._sources.refuse(CHAT, "" if prompts else words.NO_PROMPTS)
        if self._source == CHAT and not prompts:
            self._choose(BUILT_IN)

    def set_blocked(self, reason: str) -> None:
        """Set the reason nothing may run now, as a sentence; empty when it may."""
        self._blocked = reason if self.comparison.possible else words.NO_COMPARE
        self._refresh()

    def run(self) -> None:
        """Run the comparison the way the button does; an invalid input is reported under it."""
        if self.busy or self._blocked:
            return
        file = _path_of(self.file) if self._source == FILE else ""
        text = _path_of(self.text)
        for path, needed in ((file, self._source == FILE), (text, bool(text))):
            if needed and not _is_file(path):
                self._say(words.no_file(path))
                return
        self._say("")
        self._progress = ""
        columns = self.columns.columns
        if columns[0].remote is not None:
            self._say(words.FIRST_HERE)
            return
        self._running = [column.name for column in columns]
        prompts = {BUILT_IN: (), CHAT: tuple(self._prompts), FILE: file}[self._source]
        self.comparison.start(ComparisonWork(columns, prompts, text, self.tokens.value(), self.rounds.value()))

    def stop(self) -> None:
        self.comparison.stop()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.shown.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self.busy:
            self.stop()
        else:
            super().keyPressEvent(event)

    def _work(self) -> QWidget:
        """Build the card of the work: prompts, length of an answer, rounds, and a text to score."""
        self._sources = Segments(tr("Prompts"), list(_PROMPTS), list(_PROMPTS.values()), "compare.prompts")
        self._sources.chosen.connect(self._choose)
        self.file, browse = self._path(
            "compare.file",
            tr("Prompts: path of a file"),
            tr("A text, or a .jsonl of prompts"),
            tr("Choose a file. Prompts"),
        )
        self._of_file = (self.file, browse)
        prompts = _line(self._sources, self.file, browse)
        self.tokens = _number("compare.tokens", tr("Length of an answer in tokens"), 2, 4096, 64)
        self.tokens.setSuffix(" " + tr("tokens"))
        self.rounds = _number("compare.rounds", tr("Rounds"), 0, 64, 0)
        self.rounds.setSpecialValueText(tr("as needed"))
        self.rounds.setToolTip(tip(tr("As needed: until each figure has a verdict, or for about a minute.")))
        self.text, browse = self._path(
            "compare.text",
            tr("Text to score: path of a file"),
            tr("None", "a text"),
            tr("Choose a file. Text to score"),
        )
        self.text.setToolTip(tip(tr("Every column is scored on it: perplexity, and KL against the first one.")))
        card = named(QFrame(), card="choice")
        grid = fill(QGridLayout(card), margins=(14, 12, 14, 12), spacing=(16, 8), wide=1)
        rows = (
            (tr("Prompts"), prompts),
            (tr("Length of an answer"), self.tokens),
            (tr("Rounds"), self.rounds),
            (tr("Text to score"), _line(self.text, browse)),
        )
        for row, (title, widget) in enumerate(rows):
            grid.addWidget(QLabel(title), row, 0)
            short = widget in (self.tokens, self.rounds)
            grid.addWidget(widget, row, 1, Qt.AlignmentFlag.AlignLeft if short else Qt.AlignmentFlag(0))
        return card

    def _run_row(self) -> QWidget:
        self.go = named(QPushButton(tr("Compare")), "compare.run", clicked=self.run, kind="primary")
        self.cancel = named(QPushButton(tr("Cancel")), "compare.cancel", clicked=self.stop)
        self.status = caption(name="compare.status")
        self.bar = named(QProgressBar(textVisible=False), title=tr("Progress of the comparison"))
        row = fill(QHBoxLayout(), self.go, self.cancel, (self.status, 1), spacing=12)
        holder = QWidget()
        fill(QVBoxLayout(holder), row, self.bar, margins=0)
        return holder

    def _save_row(self) -> QWidget:
        """Over the result."""
        self._saves = QWidget()
        row = fill(QHBoxLayout(self._saves), margins=0, spacing=8)
        kinds: tuple[tuple[Literal["html", "json"], str, str], ...] = (
            ("html", tr("Save report…"), tr("A web page with everything that is shown here")),
            ("json", tr("Save figures…"), tr("A file that kvasir bench --load shows again")),
        )
        for kind, title, about in kinds:
            button = QPushButton(button_text(title))
            named(button, f"compare.save.{kind}", tooltip=tip(about))
            button.clicked.connect(lambda _=False, kind=kind: self._save(kind))
            row.addWidget(button)
        row.addStretch(1)
        self._saves.hide()
        return self._saves

    def _path(self, name: str, accessible: str, placeholder: str, choose: str) -> tuple[QLineEdit, QPushButton]:
        edit = named(QLineEdit(placeholderText=placeholder, clearButtonEnabled=True), name, title=accessible)
        edit.textChanged.connect(lambda: self._say(""))
        browse = QPushButton(tr("Choose…"))
        named(browse, f"{name}.choose", title=choose)
        browse.clicked.connect(lambda: self._browse(edit))
        return edit, browse

    def _browse(self, edit: QLineEdit) -> None:
        path, _ = QFileDialog.getOpenFileName(self, edit.accessibleName(), edit.text())
        if path:
            edit.setText(path)

    def _choose(self, source: str) -> None:
        self._source = source
        self._sources.choose(source)
        for widget in self._of_file:
            widget.setVisible(source == FILE)
        self._say("")

    def _save(self, kind: Literal["html", "json"]) -> None:
        start = str(Path.home() / FILES[kind])
        path, _ = QFileDialog.getSaveFileName(self, tr("Save the comparison"), start, _FILTERS[kind])
        if not path:
            return
        try:
            self.comparison.save(kind, Path(path))
        except OSError as error:
            self._say(words.not_saved(error))
        else:
            self._say(tr("Saved as {path}.", path=path), "caption")

    def _on_progress(self, told: object) -> None:
        if isinstance(told, LabProgress) and not self.comparison.stopping:
            self.bar.setRange(0, told.total)
            self.bar.setValue(told.done)
            self._progress = words.progress(told, self._running)
            self.status.setText(self._progress)

    def _on_found(self, told: LabCompared) -> None:
        if self.result is not None:
            take_out(self.result)
        self.result = ComparisonView(told, self.columns.specs, self._theme)
        self._column.insertWidget(self._column.count() - 1, self.result)
        self._saves.setVisible(self.comparison.can_save)

    def _on_ended(self, sentence: str) -> None:
        self._say(sentence, "caption" if sentence == words.STOPPED else "bad")
        self.done.emit()

    def _say(self, sentence: str, role: str = "bad") -> None:
        say(self.note, sentence, role)

    def _refresh(self) -> None:
        running, stopping = self.comparison.running, self.comparison.stopping
        had_focus = self.go.hasFocus() or self.cancel.hasFocus()
        self.go.setVisible(not running)
        self.go.setEnabled(not self._blocked)
        self.cancel.setVisible(running)
        self.bar.setVisible(running)
        if running and (stopping or not self._progress):
            self.bar.setRange(0, 0)
        waiting = words.STOPPING if stopping else self._progress or words.STARTING
        self.status.setText(waiting if running else self._blocked)
        if had_focus:
            (self.cancel if running else self.go).setFocus()

    def _fit(self) -> None:
        for number in (self.tokens, self.rounds):
            number.setFixedWidth(self._theme.px(_NUMBER_PX))


def _number(name: str, accessible: str, low: int, high: int, value: int) -> WholeNumber:
    number = named(WholeNumber(grouped=True), name, title=accessible)
    number.setRange(low, high)
    number.setValue(value)
    return number


def _line(*widgets: QWidget) -> QWidget:
    """Side by side, a field to type in as wide as there is room."""
    holder = QWidget()
    row = fill(QHBoxLayout(holder), margins=0, spacing=8)
    for widget in widgets:
        row.addWidget(widget, 1000 * isinstance(widget, QLineEdit))
    row.addStretch(1)
    return holder


def _path_of(edit: QLineEdit) -> str:
    text = edit.text().strip()
    return os.path.expanduser(text) if text else ""


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except OSError:  # a name that no file may have
        return False
