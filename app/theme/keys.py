"""Keys that a person chooses: which can be used, how this system writes them, and what takes them."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QKeySequence
from PySide6.QtWidgets import QKeySequenceEdit, QPushButton, QStackedWidget

from app.language import tr
from app.theme.widgets import button_text, named

NONE = tr("None", "no keys")
HOW = tr("Press the new keys. Backspace takes them away, Esc leaves them as they are.")
_STANDARD = {
    tr("{keys} copies text in every field."): ("Copy",),
    tr("{keys} cuts text out in every field."): ("Cut",),
    tr("{keys} pastes in every field."): ("Paste",),
    tr("{keys} undoes what was typed in every field."): ("Undo",),
    tr("{keys} does again what was undone in every field."): ("Redo",),
    tr("{keys} chooses the whole text in every field."): ("SelectAll",),
    tr("{keys} moves the text cursor in every field."): (
        *("MoveToNextWord", "MoveToPreviousWord", "MoveToStartOfDocument", "MoveToEndOfDocument"),
        *("SelectNextWord", "SelectPreviousWord", "SelectStartOfDocument", "SelectEndOfDocument"),
    ),
    tr("{keys} deletes text in every field."): ("DeleteStartOfWord", "DeleteEndOfWord"),
}
"""Keys that every field for text has, by the sentence on what they do there."""
_ALONE = (Qt.Key.Key_F1, Qt.Key.Key_F35)
"""Keys that are of use without Ctrl or Alt: the first and the last of them."""


def native(keys: str) -> str:
    """Keys as this system writes them."""
    return QKeySequence(keys).toString(QKeySequence.SequenceFormat.NativeText)


def held(modifier: str) -> str:
    """A key that is held while others are pressed, such as "Ctrl", as this system writes it."""
    return native(f"{modifier}+0").removesuffix("0").removesuffix("+")


def unusable(keys: str) -> str:
    """Reason, as a sentence, that no command can have these keys; "" if one can."""
    sequence = QKeySequence(keys)
    if sequence.count() != 1 or not sequence.toString():
        return tr("Only a single combination of keys can be used.")
    combination = sequence[0]  # type: ignore[index]
    key, modifiers = combination.key(), combination.keyboardModifiers()
    for does, names in _STANDARD.items():
        standard = (getattr(QKeySequence.StandardKey, name) for name in names)
        if any(sequence in QKeySequence.keyBindings(each) for each in standard):
            return does.format(keys=native(keys))
    commands = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier | Qt.KeyboardModifier.MetaModifier
    if not modifiers & commands and not _ALONE[0] <= key <= _ALONE[1]:
        return tr(
            "{keys} alone is needed for typing. Hold {ctrl} or {alt} as well, or use a function key.",
            keys=native(keys),
            ctrl=held("Ctrl"),
            alt=held("Alt"),
        )
    return ""


class KeyField(QKeySequenceEdit):
    """``pressed``: the keys that the person pressed as portable text, "" for none; ``left``: nothing is changed."""

    pressed = Signal(str)
    left = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setMaximumSequenceLength(1)
        self.editingFinished.connect(self._on_finished)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        alone = not event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        if alone and event.key() == Qt.Key.Key_Escape:
            self.left.emit()
        elif alone and event.key() in (Qt.Key.Key_Backspace, Qt.Key.Key_Delete):
            self.pressed.emit("")
        else:
            super().keyPressEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.left.emit()

    def _on_finished(self) -> None:
        if keys := self.keySequence().toString():
            self.pressed.emit(keys)


class KeyCell(QStackedWidget):
    """The keys of one ``command``: a button that shows them, and the field in its place while others are pressed."""

    asked = Signal()
    """The field waits for keys."""
    pressed = Signal(str)
    left = Signal()

    def __init__(self, name: str, command: str) -> None:
        super().__init__()
        self._command = command
        self.button = named(QPushButton(), f"keys.{name}", clicked=self._ask)
        self.addWidget(self.button)
        self._field: KeyField | None = None

    def show_keys(self, keys: str) -> None:
        self.button.setText(button_text(keys or NONE))
        self.button.setAccessibleName(tr("Keys of “{command}”: {keys}", command=self._command, keys=keys or NONE))

    def _ask(self) -> None:
        field = self._field = named(
            KeyField(), "keys.field", title=tr("New keys of “{command}”", command=self._command)
        )
        field.pressed.connect(self._on_pressed)
        field.left.connect(self._on_left)
        self.addWidget(field)
        self.setCurrentWidget(field)
        field.setFocus()
        self.asked.emit()

    def _on_pressed(self, keys: str) -> None:
        self._end()
        self.pressed.emit(keys)

    def _on_left(self) -> None:
        self._end()
        self.left.emit()

    def _end(self) -> None:
        field, self._field = self._field, None
        if field is not None:
            field.blockSignals(True)
            had = field.hasFocus()
            self.setCurrentWidget(self.button)
            if had:
                self.button.setFocus()
            self.removeWidget(field)
            field.deleteLater()
