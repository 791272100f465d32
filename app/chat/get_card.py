"""On the first screen: a few models that suit this computer, each with a button that brings it here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.gpu.card import Buttons
from app.gpu.words import Button
from app.language import tr
from app.models.state import getting
from app.theme.sheet import set_role
from app.theme.theme import Theme
from app.theme.widgets import ElidedLabel, FillBar, caption, clear, fill, keep_place, named, show_badge, tip

TITLE = tr("Get a model for this computer")
LOOKING = tr("Checking which models suit this computer…")
_LINES = 3
_BUTTON_PX = 112
"""Room for "Chat with it": what stands before the buttons is in one column, and stays there when a model has come."""
NONE = tr(
    "No model of the list fits into the memory that is free. Close other programs, or search for a smaller model."
)


class Line(NamedTuple):
    """Texts about one model. ``key`` names it in the signals; ``tone``: of the ``verdict``; ``why``: reason for it.

    ``share``: how far its download is, 0..1; below 0 there is none. ``failed``: ``about`` says why it was stopped.
    ``short`` stands for an ``about`` that has no room.
    """

    key: str
    name: str
    size: str
    verdict: str
    tone: str
    why: str
    about: str
    buttons: tuple[Button, ...]
    share: float = -1.0
    failed: bool = False
    short: str = ""


class ModelLine(QWidget):
    """``acted`` carries a button's key and the model's."""

    acted = Signal(str, str)

    def __init__(self, theme: Theme, key: str) -> None:
        super().__init__()
        self.key, self._theme = key, theme
        self.setObjectName(f"get.{key}")
        self.name = ElidedLabel("", "figure")
        self.bytes = named(QLabel(), role="mute")
        self.badge = QLabel()
        self.about = ElidedLabel("", "caption")
        self.trouble = named(caption(), f"get.{key}.trouble", role="bad")
        """Whole, in place of ``about``, where there is room."""
        self._failed, self._room = False, True
        self.bar = FillBar(theme)
        keep_place(self.bar)  # nothing moves when the download begins
        self.bar.setFixedHeight(3)
        self.buttons = Buttons(f"get.{key}")
        self.buttons.pressed.connect(lambda act: self.acted.emit(act, key))
        head = fill(QHBoxLayout(), (self.name, 1), self.bytes, self.badge, spacing=10)
        words = fill(QVBoxLayout(), head, self.about, self.trouble, self.bar, spacing=2)
        fill(QHBoxLayout(self), (words, 1), (self.buttons, 0, Qt.AlignmentFlag.AlignVCenter), margins=0, spacing=16)

    def show_line(self, line: Line) -> None:
        self.name.setText(line.name)
        self.bytes.setText(line.size)
        show_badge(self.badge, line.verdict, line.tone)
        self.badge.setToolTip(tip(line.why))
        self.about.short = line.short
        self.about.setText(line.about)
        set_role(self.about, "bad" if line.failed else "caption")
        self.trouble.setText(line.about if line.failed else "")
        self._failed = line.failed
        self.show_sentence(self._room)
        self.bar.setVisible(line.share >= 0)
        self.bar.fraction = line.share
        self.bar.update()
        self.buttons.show_buttons(line.buttons)
        for button in self.buttons.findChildren(QPushButton):
            if not button.objectName():  # taken out just now
                continue
            button.setAccessibleName(f"{button.text()}: {line.name}")
            button.setMinimumWidth(self._width(button) if len(line.buttons) == 1 else 0)
            button.show()  # what is added to a layout is else shown, and counted, in the next turn of the event loop
        self.setAccessibleName(f"{line.name}, {line.size}. {line.about}")

    def _width(self, button: QPushButton) -> int:
        """Pixels across of a button that stands alone: room for the longest title that one can have."""
        button.ensurePolished()  # else it is measured without its style
        metrics, frame = button.fontMetrics(), button.sizeHint().width()
        again, shown = (metrics.size(0, text).width() for text in (getting.AGAIN, button.text()))
        return max(self._theme.px(_BUTTON_PX), frame + again - shown)

    def show_sentence(self, shown: bool) -> None:
        """Show the sentence about the model, or hide it for want of room; of a failure one line is always shown."""
        self._room = shown
        self.about.setVisible(shown != self._failed)
        self.trouble.setVisible(shown and self._failed)


class GetCard(QFrame):
    """``acted`` carries what is to be done with a model ("get", "load", "cancel", "resume") and its key."""

    acted = Signal(str, str)
    all_asked = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        named(self, "welcome.get", card="choice")
        title = named(QLabel(TITLE), role="figure")
        self.machine = ElidedLabel("", "caption")
        self.machine.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.said = caption(LOOKING, "welcome.get.said")
        self.said.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.all = named(
            QPushButton(tr("All models…")),
            "welcome.get.all",
            title=tr("All recommended models"),
            clicked=self.all_asked,
            kind="quiet",
        )
        head = fill(QHBoxLayout(), title, (self.machine, 1), self.all, spacing=12)
        self._rows = fill(QVBoxLayout(), spacing=8)
        fill(QVBoxLayout(self), head, self.said, self._rows, margins=(16, 8, 12, 12), spacing=8)
        self.lines: list[ModelLine] = []
        self.show_lines([], False)

    def show_lines(self, lines: Sequence[Line], judged: bool) -> bool:
        """These models, whose rows stay while they do; whether the card has another height now. ``judged``: it is
        known what suits this computer."""
        before = [each.key for each in self.lines], self.said.text(), [each.trouble.text() for each in self.lines]
        if before[0] != [each.key for each in lines]:
            clear(self._rows, self.lines)
            self.lines = [self._add(each.key) for each in lines]
        for row, line in zip(self.lines, lines, strict=True):
            row.show_line(line)
        self.said.setText("" if lines else NONE if judged else LOOKING)
        self.said.setVisible(not lines)
        # Room for the models that come, so that nothing below moves then.
        self.said.setMinimumHeight(0 if judged else _LINES * (2 * self.fontMetrics().lineSpacing() + 12))
        return before != (
            [each.key for each in self.lines],
            self.said.text(),
            [each.trouble.text() for each in self.lines],
        )

    def show_sentences(self, shown: bool) -> None:
        """Show or hide the sentence about each model; hidden where there is no room for it."""
        for line in self.lines:
            line.show_sentence(shown)

    def _add(self, key: str) -> ModelLine:
        line = ModelLine(self._theme, key)
        line.acted.connect(self.acted)
        self._rows.addWidget(line)
        line.show()
        return line
