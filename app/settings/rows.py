"""Sections and rows of the page Settings: found by words, and reset one by one."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QSpinBox, QVBoxLayout, QWidget

from app.language import english, tr
from app.settings.store import SettingsStore, UserSettings
from app.theme.numbers import WholeNumber
from app.theme.theme import Theme
from app.theme.widgets import Segments, Toggle, caption, fill, named, show_checked, switched, tip

DEFAULTS = UserSettings()


class SettingRow(QWidget):
    """Name and help at the left, the control at the right. ``fields`` are the settings that the control changes.

    ``show_values`` shows theirs; without it the control of a single field shows that one. ``reset_asked`` carries their
    defaults.
    """

    reset_asked = Signal(object)

    def __init__(
        self,
        name: str,
        about: str,
        control: QWidget,
        fields: tuple[str, ...] = (),
        show_values: Callable[[UserSettings], object] | None = None,
    ) -> None:
        super().__init__()
        self.name, self.about, self.control, self.fields = name, about, control, fields
        self._show_values = show_values or self._show_value
        if not control.accessibleName():
            control.setAccessibleName(name)
        self._name, self._about = QLabel(name, wordWrap=True), caption(about)
        self._about.setVisible(bool(about))
        self.reset = named(QPushButton(tr("Reset")), f"settings.{'.'.join(fields)}.reset", kind="link")
        named(self.reset, title=tr("Reset: {what}", what=name), tooltip=tip(tr("Back to the usual value")))
        self.reset.clicked.connect(lambda: self.reset_asked.emit({each: getattr(DEFAULTS, each) for each in fields}))
        words = fill(QVBoxLayout(), self._name, self._about, spacing=2)
        line = fill(QHBoxLayout(self), (words, 1), self.reset, margins=0, spacing=16)
        fill(line, (control, 0, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter))
        self.reset.hide()

    def follow(self, settings: UserSettings) -> None:
        """Show the values in force, and a way back from those that are not the usual ones."""
        self._show_values(settings)
        self.reset.setVisible(self.is_changed(settings))

    def _show_value(self, settings: UserSettings) -> None:
        control = self.control
        value = getattr(settings, self.fields[0])
        if isinstance(control, Segments):
            control.choose(value)
        elif isinstance(control, Toggle):
            show_checked(control, value)
        elif isinstance(control, QSpinBox):
            control.setValue(value or 0)

    def is_changed(self, settings: UserSettings) -> bool:
        return any(getattr(settings, each) != getattr(DEFAULTS, each) for each in self.fields)

    def search(self, words: list[str], heading: str, theme: Theme) -> bool:
        """Show the row if it, or the ``heading`` of its section, has all of the words, be it in English, and mark them;
        no words are in every row."""
        texts = heading, self.name, self.about
        found = has(" ".join([*texts, *map(english, texts)]), words)
        for label, text in ((self._name, self.name), (self._about, self.about)):
            marked = mark(text, words, theme) if found else ""
            label.setTextFormat(Qt.TextFormat.RichText if marked else Qt.TextFormat.PlainText)
            label.setText(marked or text)
        self.setVisible(found)
        return found


class SettingSection(QWidget):
    """A heading and what stands below it; hidden where a search leaves nothing of it. What is changed in it goes to the
    store at once."""

    def __init__(self, title: str, store: SettingsStore, theme: Theme) -> None:
        super().__init__()
        self.title, self._store, self._theme = title, store, theme
        self.rows: list[SettingRow] = []
        self._notes: list[QLabel] = []
        head = named(QLabel(title), role="section")
        head.setContentsMargins(0, 16, 0, 0)
        self.column = fill(QVBoxLayout(self), head, margins=0, spacing=10)

    def add(self, row: SettingRow) -> None:
        row.reset_asked.connect(lambda values: self._store.update(**values))
        self.rows.append(row)
        self.column.addWidget(row)

    def add_note(self, name: str) -> QLabel:
        """Room for a sentence on the setting above it, which a search leaves out."""
        note = caption(name=name)
        note.hide()
        self._notes.append(note)
        self.column.addWidget(note)
        return note

    def toggle(self, field: str) -> Toggle:
        """A switch of that setting."""
        toggle = named(Toggle(self._theme), f"settings.{field}")
        switched(toggle, lambda on: self._store.update(**{field: on}))
        return toggle

    def search(self, words: list[str]) -> int:
        """Number of the rows that have the words, which are shown alone."""
        found = sum([row.search(words, self.title, self._theme) for row in self.rows])
        self.setVisible(bool(found) or not words)
        for note in self._notes:
            note.setVisible(bool(note.text()) and not words)
        return found


def count(most: int, step: int, none: str, unit: str = "") -> WholeNumber:
    """A field for 0 to ``most``; ``none`` is shown for 0."""
    field = WholeNumber(grouped=True)
    field.setRange(0, most)
    named(field, singleStep=step, suffix=unit, specialValueText=none)
    return field


def has(text: str, words: list[str]) -> bool:
    return all(word in text.casefold() for word in words)


def mark(text: str, words: list[str], theme: Theme) -> str:
    """The text as HTML with the words on another ground; "" if it has none of them."""
    if not words:
        return ""
    pattern = re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))), re.IGNORECASE)
    pieces, at = [], 0
    for found in pattern.finditer(text):
        ground = f'<span style="background-color: {theme.tint("accent", 0.35)}">{escape(found[0])}</span>'
        pieces += [escape(text[at : found.start()]), ground]
        at = found.end()
    return "".join([*pieces, escape(text[at:])]) if pieces else ""
