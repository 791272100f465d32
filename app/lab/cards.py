"""The Lab's first page: a card for each experiment, by group."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout

from app.lab import words
from app.lab.layout import ColumnsLayout, PageSection, label
from app.lab.pictures import Miniature
from app.lab.pictures.examples import EXAMPLES
from app.lab.runs import LabRuns
from app.language import known, tr
from app.panel.verdicts import capital
from app.theme.sheet import set_role
from app.theme.theme import Theme
from app.theme.widgets import button_text, fill, named
from engine.protocol.lab import LabPage, LabResult

_CARD_PX = 330
_SIDES = {"window": 1}
"""Side whose picture shows the technique, by experiment, if it is not the side that the headline tells of."""


class Card(QFrame):
    """``opened`` carries the name of the experiment."""

    opened = Signal(str)

    def __init__(self, page: LabPage, theme: Theme) -> None:
        super().__init__()
        self.page = page
        named(self, f"lab.card.{page.name}", card="choice")
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        column = fill(QVBoxLayout(self), margins=(14, 12, 14, 12), spacing=6)
        open_it = QPushButton(button_text(words.heading(page)))
        title = tr("Open experiment {number}: {title}", number=page.number, title=known(page.title))
        named(open_it, f"lab.open.{page.name}", title=title, kind="heading")
        open_it.clicked.connect(lambda: self.opened.emit(page.name))
        self._tick = label("✓", "good")
        head = fill(QHBoxLayout(), open_it, 1, self._tick)
        column.addLayout(head)
        self.picture = Miniature(theme, self)
        self.picture.hide()
        shown = fill(QVBoxLayout(), self.picture, 1, spacing=0)
        about = fill(
            QHBoxLayout(), shown, (label(known(page.question), "caption"), 1, Qt.AlignmentFlag.AlignTop), spacing=12
        )
        fill(column, about, 1)
        self.found = label("", "caption", f"lab.card.{page.name}.found")
        self.below = label("", "caption", f"lab.card.{page.name}.below")
        self.note = label("", "caption", f"lab.card.{page.name}.note")
        for each in (self.found, self.below, self.note):
            column.addWidget(each)
        for words_of_it in self.findChildren(QLabel):  # a click on them opens it too
            words_of_it.setTextInteractionFlags(Qt.TextInteractionFlag.NoTextInteraction)

    def show_picture(self, result: LabResult | None) -> None:
        """The last run's picture of the technique; before the first one a drawing, where there is one."""
        if result is None:
            picture = EXAMPLES.get(self.page.name)
        else:
            side = _SIDES.get(self.page.name, result.told_of + 1 or -1)
            picture = next(iter(result.pictures[side:]), None)
        self.picture.setVisible(picture is not None)
        if picture is not None:
            self.picture.show_picture(picture, drawing=result is None)

    def show_state(self, found: str, below: str, clear: bool, running: bool, note: str) -> None:
        """Show the last finding, "" for none, the text ``below`` it, and whether it was a verdict; whether it runs now,
        and how its last run ended."""
        page = self.page
        self._tick.setVisible(bool(found))
        self._tick.setToolTip("" if clear else words.NO_VERDICT)
        set_role(self._tick, "good" if clear else "caption")
        self.below.setText(below)
        self.below.setVisible(bool(below) and not running)
        self.note.setText(note)
        self.note.setVisible(bool(note) and not running and not (found and note == words.STOPPED))
        set_role(self.note, words.note_role(note))
        if running:
            text, role = tr("Running now…"), "caption"
        elif found:
            text, role = found, "small-figure"
        elif page.refused:
            text, role = words.refusal(page), "warn"
        else:
            text, role = words.minutes(page.seconds), "caption"
        self.found.setText(capital(text))
        set_role(self.found, role)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        event.accept()
        if event.button() is Qt.MouseButton.LeftButton and self.rect().contains(event.position().toPoint()):
            self.opened.emit(self.page.name)


class Overview(PageSection):
    """All experiments, by group. ``opened`` carries the name of one."""

    opened = Signal(str)

    def __init__(self, runs: LabRuns, theme: Theme) -> None:
        super().__init__()
        self._runs = runs
        fill(self.column, margins=(0, 0, 6, 16), spacing=16)
        self.cards = [Card(page, theme) for page in runs.pages.values()]
        for card in self.cards:
            card.opened.connect(self.opened)
        for group in dict.fromkeys(card.page.group for card in self.cards):
            of_group = [card for card in self.cards if card.page.group == group]
            self.add(PageSection(known(group)).add(ColumnsLayout(of_group, theme, _CARD_PX, 2)))
        if runs.trouble and runs.index is None:
            again = named(QPushButton(tr("Try again")), "lab.again", clicked=runs.refresh)
            self.column.addWidget(again, 0, Qt.AlignmentFlag.AlignLeft)
        self.column.addStretch(1)

    def refresh(self) -> None:
        """Show the findings, and the experiment that runs now."""
        runs = self._runs
        for card in self.cards:
            name = card.page.name
            result = runs.results.get(name)
            found = words.found(result, runs.index) if result is not None else ""
            card.show_picture(result)
            below, clear = ("", False) if result is None else (words.below(result), words.clear(result))
            card.show_state(found, below, clear, name == runs.running, runs.notes.get(name, ""))
