"""The system prompt, the context policy and the sampling of one chat, in a popover.

An empty field means the model's own default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtGui import QHideEvent
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QLayout, QLineEdit, QVBoxLayout, QWidget

from app.chat.context.overflow import MEANINGS, TITLES
from app.chat.settings.adapter_choice import AdapterChoice
from app.chat.settings.preset_choice import PresetChoice
from app.chat.settings.tool_choice import ToolChoice
from app.language import figure, tr
from app.settings.store import Preset
from app.texts.exact import ExactTextEdit
from app.theme.numbers import with_point, without_groups
from app.theme.room import Scrolled
from app.theme.sheet import restyle
from app.theme.theme import Theme
from app.theme.widgets import Segments, fill, named, tip
from engine.protocol import ModelCard, Overflow, Sampling


class _Field(NamedTuple):
    name: str
    title: str
    help: str
    low: float
    high: float
    neutral: str
    kind: Callable[[str], float | int] = float


FIELDS = (
    _Field(
        "temperature",
        tr("Temperature"),
        tr("0 always takes the most likely token; higher is more varied."),
        0,
        5,
        "1",
    ),
    _Field("top_p", "Top-p", tr("Keep the likeliest tokens that together reach this probability."), 0, 1, "1"),
    _Field("top_k", "Top-k", tr("Keep only this many tokens; 0 keeps all."), 0, 1_000_000, "0", int),
    _Field("min_p", "Min-p", tr("Drop tokens below this share of the likeliest one's probability."), 0, 1, "0"),
    _Field("typical_p", "Typical-p", tr("Keep the tokens of typical surprise that together reach this."), 0, 1, "1"),
    _Field(
        "repetition_penalty",
        tr("Repetition penalty"),
        tr("Above 1, tokens of prompt and answer become less likely."),
        0.01,
        10,
        "1",
    ),
    _Field(
        "presence_penalty",
        tr("Presence penalty"),
        tr("Taken off every token that the answer already has."),
        -10,
        10,
        "0",
    ),
    _Field(
        "frequency_penalty",
        tr("Frequency penalty"),
        tr("Taken off for each time that the answer has the token."),
        -10,
        10,
        "0",
    ),
    _Field(
        "dry_multiplier",
        tr("DRY (stops loops)"),
        tr("Strength against repeating long runs of the text; 0 is off."),
        0,
        10,
        "0",
    ),
    _Field(
        "max_tokens",
        tr("Max tokens"),
        tr("Tokens; empty means as long as the context allows."),
        1,
        10_000_000,
        tr("no limit"),
        int,
    ),
    _Field("seed", tr("Seed"), tr("Empty draws a new one for each answer."), 0, 2**63 - 1, tr("Random"), int),
)
_NEUTRAL = Sampling()
SYSTEM_PX, STOP_PX, VALUE_PX = 72, 52, 150


class ChatSettings(QFrame):
    """``changed`` carries (system prompt, Sampling) once the popover closes, if anything is different."""

    changed = Signal(str, object)
    refused = Signal(str)
    """Reason a value that was typed is not in force, once the popover closes; it stands there when that opens again."""
    overflow_changed = Signal(str)
    """Overflow policy for a full context, at once when it is chosen."""
    opened = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent, Qt.WindowType.Popup)
        named(self, "chat-settings", title=tr("Chat settings"), surface="panel", edge="all")
        self._shown: tuple[str, Sampling] = ("", Sampling())
        self._card: ModelCard | None = None
        self._presets: Mapping[str, Preset] = {}
        self._applied = ""
        """The preset that was applied last here, or whose values stood here when this opened."""
        self.preset = PresetChoice(self)
        self.preset.chosen.connect(self._apply)
        self.preset.resized.connect(self._fit)
        self.system = named(ExactTextEdit(self), field="true", tabChangesFocus=True)
        self.system.setPlaceholderText(tr("What the model should know or how it should answer"))
        named(self.system, "system-prompt", title=tr("System prompt"))
        self.inputs = {field.name: self._input(field) for field in FIELDS}
        self.stop = named(ExactTextEdit(self), field="true", tabChangesFocus=True)
        named(self.stop, "sampling-stop", title=tr("Stop strings, one per line"), placeholderText=tr("one per line"))
        for text in (self.system, self.stop):
            text.textChanged.connect(self._on_edited)
        full = tr("When the context is full")
        self.overflow = Segments(full, list(TITLES), list(TITLES.values()), "overflow", self)
        self.overflow.chosen.connect(self._choose_overflow)
        self._overflow_meaning = named(QLabel(self, wordWrap=True), role="caption")
        self.adapter = AdapterChoice(self)
        self.tools = ToolChoice(self)
        self._problems = {field.name: self._problem() for field in FIELDS}
        self._chat = ""
        self._left: tuple[str, dict[str, str]] = ("", {})
        """A chat, and what was typed there that is no valid value."""
        self._corner = QPoint()
        """The top right corner, on the screen."""
        self._arrange()
        self._theme = theme
        theme.changed.connect(self._size)
        self._size()

    def show_for(
        self,
        system: str,
        sampling: Sampling,
        card: ModelCard | None,
        at: QPoint,
        overflow: Overflow = "stop",
        chat: str = "",
    ) -> None:
        """Open with these values, top right corner at ``at`` (global); empty fields show the defaults of ``card``."""
        self._chat = chat
        self.fill(system, sampling, card)
        self.preset.close_field()
        for name, text in self._left[1].items() if chat == self._left[0] else ():
            self.inputs[name].setText(text)
        self._on_edited()
        self.show_overflow(overflow)
        self._corner = at
        self._place()
        self.show()
        self.system.setFocus()
        self.opened.emit()

    def show_overflow(self, overflow: Overflow) -> None:
        self.overflow.choose(overflow)
        self._overflow_meaning.setText(MEANINGS[overflow])

    def focus_overflow(self) -> None:
        """Let the keyboard choose what happens when the context is full."""
        self.overflow.setFocus()
        self._scroll.ensureWidgetVisible(self.overflow)

    def fill(self, system: str, sampling: Sampling, card: ModelCard | None) -> None:
        self._shown, self._card = (system, sampling), card
        self._put(system, sampling)
        self._applied = next((name for name, values in self._presets.items() if values == Preset(*self.values())), "")
        self._on_edited()

    def offer_presets(self, presets: Mapping[str, Preset], applied: str | None = None) -> None:
        """Let these be chosen; ``applied`` is the one that the fields are of, None the same as before."""
        self._presets, self._applied = presets, self._applied if applied is None else applied
        self._on_edited()

    @property
    def presets(self) -> Mapping[str, Preset]:
        return self._presets

    def _apply(self, name: str) -> None:
        self._applied = name
        self._put(self._presets[name].system, self._presets[name].sampling)
        self._on_edited()

    def _put(self, system: str, sampling: Sampling) -> None:
        """Show these values, with the defaults of the model."""
        card = self._card
        self.system.setPlainText(system)
        for field in FIELDS:
            value = getattr(sampling, field.name)
            default = getattr(card.sampling, field.name) if card is not None else None
            own = default is not None and default != getattr(_NEUTRAL, field.name)
            edit = self.inputs[field.name]
            edit.setPlaceholderText(tr("Default ({value:g})", value=default) if own else field.neutral)
            edit.setText("" if value == getattr(_NEUTRAL, field.name) else _written(field, value))
        self.stop.setPlainText("\n".join(text.replace("\n", "\\n") for text in sampling.stop))

    def values(self) -> tuple[str, Sampling]:
        """Return the system prompt and sampling of the fields; a field without a valid number keeps its value."""
        given = {field.name: self._value(field) for field in FIELDS}
        stop = [piece.replace("\\n", "\n") for piece in self.stop.toPlainText().split("\n") if piece]
        sampling = msgspec.structs.replace(self._shown[1], **given, stop=stop)
        return self.system.toPlainText().strip(), sampling

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        values, wrong = self.values(), self._wrong()
        self._left = (self._chat, {field.name: self.inputs[field.name].text() for field, _ in wrong})
        if wrong:
            self.refused.emit(" ".join(f"{sentence} {self._stays(field)}" for field, sentence in wrong))
        if values != self._shown:
            self._shown = values
            self.changed.emit(*values)

    def _choose_overflow(self, overflow: Overflow) -> None:
        self.show_overflow(overflow)
        self.overflow_changed.emit(overflow)

    def _input(self, field: _Field) -> QLineEdit:
        edit = named(QLineEdit(self), f"sampling-{field.name}", title=field.title, tooltip=tip(field.help))
        edit.textEdited.connect(self._on_edited)
        return edit

    def _arrange(self) -> None:
        inside = QWidget()
        outer = fill(QVBoxLayout(self), margins=1)
        self._scroll = Scrolled(inside)
        outer.addWidget(self._scroll)
        column = fill(QVBoxLayout(inside), self.preset, margins=(15, 13, 15, 13), spacing=6)
        fill(column, _head(tr("System prompt"), self), self.system)
        fill(column, _head(tr("When the context is full"), self), self.overflow, self._overflow_meaning)
        fill(column, _head(tr("Adapter"), self), self.adapter)
        fill(column, _head(tr("Tools"), self), self.tools, _head(tr("Sampling"), self))
        grid = fill(QGridLayout(), spacing=(24, 6))
        for row, field in enumerate(FIELDS):
            label = named(QLabel(field.title, self), tooltip=tip(field.help))
            label.setBuddy(self.inputs[field.name])
            grid.addWidget(label, 2 * row, 0)
            fill(grid, (self.inputs[field.name], 2 * row, 1), (self._problems[field.name], 2 * row + 1, 0, 1, 2))
        grid.addWidget(QLabel(tr("Stop strings"), self), 2 * len(FIELDS), 0)
        grid.addWidget(self.stop, 2 * len(FIELDS), 1)
        column.addLayout(grid)

    def _parse(self, field: _Field) -> float | int | None:
        """The field's value, None for an empty one. Raises ValueError for text that is not a number in range."""
        text = self.inputs[field.name].text().strip()
        if not text:
            return getattr(_NEUTRAL, field.name)
        if len(text) > 40:
            raise ValueError(field.name)
        if field.kind is int:
            value: float | int = int(without_groups(text) or "")
        else:
            value = float(with_point(text, "."))
        if not field.low <= value <= field.high:
            raise ValueError(field.name)
        return value

    def _value(self, field: _Field) -> float | int | None:
        try:
            return self._parse(field)
        except ValueError:
            return getattr(self._shown[1], field.name)

    def _problem(self) -> QLabel:
        label = named(QLabel(self, wordWrap=True), role="bad")
        label.setVisible(False)
        return label

    def _wrong(self) -> list[tuple[_Field, str]]:
        """The fields with something that they do not take, each with the sentence that says what they take."""
        found = []
        for field in FIELDS:
            try:
                self._parse(field)
            except ValueError:
                values = {"name": field.title, "low": field.low, "high": field.high}
                if field.kind is int:
                    sentence = tr("{name} takes a whole number from {low:,} to {high:,}.", **values)
                else:
                    sentence = tr("{name} takes a number from {low:,} to {high:,}.", **values)
                found.append((field, sentence))
        return found

    def _stays(self, field: _Field) -> str:
        """Say that the text typed is not in force, and which value stays."""
        value = getattr(self._shown[1], field.name)
        typed = self.inputs[field.name].text().strip()
        if value == getattr(_NEUTRAL, field.name):
            return tr("“{typed}” is not in force; it stays at its default.", typed=typed)
        return tr("“{typed}” is not in force; it stays at {value}.", typed=typed, value=_written(field, value))

    def _check(self) -> None:
        wrong = {field.name: sentence for field, sentence in self._wrong()}
        for name, label in self._problems.items():
            label.setText(wrong.get(name, ""))
            label.setVisible(name in wrong)
            edit = self.inputs[name]
            if bool(edit.property("wrong")) != (name in wrong):
                edit.setProperty("wrong", name in wrong)
                restyle(edit)
        self._fit()

    def _on_edited(self, *_: object) -> None:
        self._check()
        name = self._applied if self._applied in self._presets else ""
        self.preset.show_for(self._presets, name, bool(name) and self._presets[name] != Preset(*self.values()))

    def _place(self) -> None:
        """As large as it needs to be and as the screen is, its top right corner at the button's."""
        for part in self.findChildren(QWidget):
            part.ensurePolished()  # how large it is depends on its style
        for layout in self.findChildren(QLayout):
            layout.invalidate()
        self._scroll.updateGeometry()
        self.resize(self.sizeHint())
        room = self.screen().availableGeometry()
        left, top = self._corner.x() - self.width(), min(self._corner.y(), room.bottom() - self.height())
        self.move(max(room.left(), left), max(room.top(), top))

    def _size(self) -> None:
        """Fields have room for as many letters as at the usual text size."""
        self.system.setFixedHeight(max(SYSTEM_PX, self._theme.px(SYSTEM_PX)))
        self.stop.setFixedHeight(max(STOP_PX, self._theme.px(STOP_PX)))
        for edit in (*self.inputs.values(), self.stop):
            edit.setFixedWidth(max(VALUE_PX, self._theme.px(VALUE_PX)))

    def _fit(self) -> None:
        self._scroll.updateGeometry()
        if self.isVisible():
            self.resize(self.sizeHint())


def _written(field: _Field, value: float | int) -> str:
    """A value as the field shows it, and takes it."""
    return figure(value, "," if field.kind is int else "g")


def _head(title: str, parent: QWidget) -> QLabel:
    return named(QLabel(title, parent), role="section")
