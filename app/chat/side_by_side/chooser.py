"""Dialog in which two to four columns are chosen, each with what one answer is asked with."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QDialog, QGridLayout, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.chat.side_by_side.columns import FEWEST, MOST, Offer
from app.language import tr
from app.theme.menus import ChoiceButton, ChoiceGroup
from app.theme.room import room_of
from app.theme.theme import Theme
from app.theme.widgets import Segments, caption, fill, named, say

WIDTH_PX = 460
ABOUT = tr(
    "All answers start at once and stand side by side; choose the one that the chat goes on from. Another seed: the "
    "same settings, other random choices."
)
ONE_MODEL = tr(
    "Two models of this computer cannot answer at once, as one is loaded at a time; Compare loads them in turn."
)
NO_TOOLS = tr("Answers side by side call no tools.")
USUAL = ("chat", "seed", "temperature:0", "temperature:1")
"""Keys of the columns at the first time."""


class SeveralDialog(QDialog):
    """``chosen`` carries the keys of the columns, from the left."""

    chosen = Signal(list)
    compare_asked = Signal()

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        named(self, "several", windowTitle=tr("Ask several"))
        counts = [str(count) for count in range(FEWEST, MOST + 1)]
        self.count = Segments(tr("Number of answers"), counts, counts, "several.count")
        self.count.chosen.connect(lambda count: self._show_rows(int(count)))
        titles = [tr("Answer {number}", number=place + 1) for place in range(MOST)]
        self.choices = [ChoiceButton(title, {}) for title in titles]
        self._rows = [QLabel(title) for title in titles]
        grid = fill(QGridLayout(), spacing=(16, 8), wide=1)
        for place, (label, choice) in enumerate(zip(self._rows, self.choices, strict=True)):
            named(choice, f"several.{place + 1}")
            fill(grid, (label, place, 0), (choice, place, 1))
        self._tools = caption(NO_TOOLS, "several.tools")
        self.compare = named(QPushButton(tr("Open Compare")), "several.compare", kind="link", clicked=self._compare)
        self.ask = named(QPushButton(tr("Ask")), "several.ask", kind="primary", clicked=self._accept, default=True)
        cancel = named(QPushButton(tr("Cancel")), "several.cancel", clicked=self.reject)
        for button in (self.compare, cancel, *self.choices, *self.count.findChildren(QPushButton)):
            button.setAutoDefault(False)  # Enter asks
        head = fill(QHBoxLayout(), named(QLabel(tr("Ask several")), role="title"), 1, self.count)
        note = fill(QHBoxLayout(), self.compare, 1)
        foot = fill(QHBoxLayout(), 1, cancel, self.ask, spacing=8)
        self._column = column = fill(
            QVBoxLayout(self), head, caption(ABOUT), grid, self._tools, margins=(24, 18, 24, 16), spacing=12
        )
        fill(column, caption(ONE_MODEL, "several.one-model"), note, 1, foot, margins=(24, 18, 24, 16))

    def show_for(self, offers: Sequence[Offer], keys: Sequence[str], tools: bool) -> None:
        """Open with these columns chosen; ``tools``: the chat has some."""
        wanted = [*keys, *USUAL[len(keys) :]]
        for key, choice in zip(wanted, self.choices, strict=True):
            choice.key = key
        self.offer(offers)
        known = {key for offer in offers for key in offer.columns}
        for choice in self.choices:
            if choice.key not in known:  # a preset or a server that is gone
                choice.choose(USUAL[0])
        say(self._tools, NO_TOOLS if tools else "")
        count = len(keys) or FEWEST
        self.count.choose(str(count))
        self._show_rows(count)
        self.open()

    def offer(self, offers: Sequence[Offer]) -> None:
        """Let these be chosen; what is chosen stays."""
        titles: list[dict[str | None, str]] = [
            {key: column.heading for key, column in offer.columns.items()} for offer in offers
        ]
        groups = [ChoiceGroup(offer.heading, each) for offer, each in zip(offers[1:], titles[1:], strict=True)]
        for choice in self.choices:
            choice.retitle(titles[0], groups)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.choices[0].setFocus()
        QTimer.singleShot(0, self, self._fit)  # how high its words are is known once all have their style

    def _show_rows(self, count: int) -> None:
        for place, (label, choice) in enumerate(zip(self._rows, self.choices, strict=True)):
            label.setVisible(place < count)
            choice.setVisible(place < count)
        self._fit()

    def _fit(self) -> None:
        room = room_of(self)
        width = min(self._theme.px(WIDTH_PX), room.width())
        self._column.activate()
        self.resize(width, min(self._column.totalHeightForWidth(width), room.height()))

    def _accept(self) -> None:
        self.chosen.emit([choice.key for choice in self.choices if not choice.isHidden()])
        self.accept()

    def _compare(self) -> None:
        self.reject()
        self.compare_asked.emit()
