"""Presets of a chat's system prompt and sampling: a button with the present one, a menu, and a field for a name."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QLineEdit, QVBoxLayout, QWidget

from app.language import tr
from app.theme.menus import MenuButton
from app.theme.widgets import fill, named, say

NONE = tr("None", "no preset")
HELP = tr("A system prompt and sampling under a name, for any chat")
MOST = 80
"""Characters of a name."""


class PresetChoice(QWidget):
    """``chosen`` carries the name of a preset that is to be applied; ``saved`` one under which what stands in the
    fields is to be kept; ``renamed`` an old name and a new one; ``deleted`` the name of one that is to go."""

    chosen = Signal(str)
    saved = Signal(str)
    renamed = Signal(str, str)
    deleted = Signal(str)
    resized = Signal()
    """The field for a name came or went."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._names: list[str] = []
        self._old = ""
        """The preset that is being renamed; "" for none."""
        self.button = named(MenuButton(self), "preset-choice", tooltip=HELP)
        self.field = named(_NameField(self), "preset-name", title=tr("Name of the preset"))
        self.field.setPlaceholderText(tr("Name, then Enter"))
        self.field.setMaxLength(MOST)
        self.field.returnPressed.connect(self._accept)
        self.field.given_up.connect(self.close_field)
        self._problem = named(QLabel(self, wordWrap=True), role="bad")
        column = fill(QVBoxLayout(self), margins=0, spacing=6)
        head = named(QLabel(tr("Preset"), self), role="section")
        line = fill(QHBoxLayout(), head, (self.button, 1), spacing=24)
        fill(column, line, self.field, self._problem)
        self.close_field()
        self.show_for([], "", False)

    @property
    def problem(self) -> str:
        """Reason the name in the field cannot be taken; "" if it can."""
        return "" if self._problem.isHidden() else self._problem.text()

    def show_for(self, names: Collection[str], name: str, changed: bool) -> None:
        """Offer the presets of these ``names``; ``name`` was applied last, and ``changed`` since."""
        self._names = sorted(names, key=str.casefold)
        button = self.button
        button.clear()
        for each in self._names:
            button.offer(each, f"preset.{each}", partial(self.chosen.emit, each), each == name)
        if names:
            button.separate()
        button.offer(tr("Save as a new preset…"), "preset.save", lambda: self._ask(""))
        if name:
            if changed:
                save = tr("Save the changes to “{name}”", name=name)
                button.offer(save, "preset.update", lambda: self.saved.emit(name))
            button.offer(tr("Rename “{name}”…", name=name), "preset.rename", lambda: self._ask(name))
            button.offer(tr("Delete “{name}”", name=name), "preset.delete", lambda: self.deleted.emit(name))
        title = tr("{name} (changed)", name=name) if changed and name else name or NONE
        button.setAccessibleName(tr("Preset: {name}", name=title))
        button.show_title(title)

    def close_field(self) -> None:
        self.field.hide()
        self._say("")

    def _ask(self, old: str) -> None:
        self._old = old
        self.field.setText(old)
        self.field.selectAll()
        self.field.show()
        self.field.setFocus()
        self.resized.emit()

    def _accept(self) -> None:
        name, old = self.field.text().strip(), self._old
        if not name:
            self._say(tr("A preset needs a name."))
        elif name != old and name in self._names:
            self._say(tr("There is a preset called “{name}” already. Choose another name.", name=name))
        else:
            self.close_field()
            if not old:
                self.saved.emit(name)
            elif name != old:
                self.renamed.emit(old, name)

    def _say(self, sentence: str) -> None:
        say(self._problem, sentence)
        self.resized.emit()


class _NameField(QLineEdit):
    """Escape gives it up, and does not close what it lies in."""

    given_up = Signal()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.given_up.emit()
        else:
            super().keyPressEvent(event)
