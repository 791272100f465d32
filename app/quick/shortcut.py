"""A global shortcut: keys that reach the program whichever window is in front."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from PySide6.QtCore import QObject, QSocketNotifier, Qt, Signal
from PySide6.QtGui import QKeySequence

from app.language import tr
from app.theme.keys import native

BIND = tr("Set a shortcut for the command `kvasir --quick` in the desktop's settings instead.")
_NONE_HERE = tr("Kvasir cannot set a global shortcut on this system.")
_MODIFIERS = {
    "Ctrl": Qt.KeyboardModifier.ControlModifier,
    "Alt": Qt.KeyboardModifier.AltModifier,
    "Shift": Qt.KeyboardModifier.ShiftModifier,
    "Meta": Qt.KeyboardModifier.MetaModifier,
}


class Combination(NamedTuple):
    """``modifiers`` of Ctrl, Alt, Shift and Meta (the key with the desktop's logo), and the ``key`` as Qt writes it."""

    modifiers: tuple[str, ...]
    key: str

    @classmethod
    def of(cls, keys: str) -> Combination:
        """Take apart a single combination in portable text, such as "Ctrl+Alt+Space"."""
        combination = QKeySequence(keys)[0]  # type: ignore[index]
        held = combination.keyboardModifiers()
        return cls(
            tuple(name for name, modifier in _MODIFIERS.items() if held & modifier),
            QKeySequence(Qt.Key.Key_Tab if combination.key() == Qt.Key.Key_Backtab else combination.key()).toString(),
        )


class GlobalShortcut(QObject):
    """One shortcut at a time. This one holds no keys: it is for desktops on which there is no way known to do so."""

    pressed = Signal()
    changed = Signal()
    """:attr:`sentence` may be another."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._sentence = ""
        self._notifier: QSocketNotifier | None = None

    @property
    def sentence(self) -> str:
        """Reason the keys that are wanted do not work, or others do; "" if they do, or none are wanted."""
        return self._sentence

    def hold(self, keys: str) -> None:
        """Take these keys, as portable text, from now on in place of those before; "" for none."""
        self._say(f"{_NONE_HERE} {BIND}" if keys else "")

    def close_down(self) -> None:
        """Give the keys back, before the program ends."""

    def _listen(self, descriptor: int, read: Callable[[], object]) -> None:
        """Call ``read`` whenever something has come there."""
        self._notifier = QSocketNotifier(descriptor, QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(read)

    def _stop_listening(self) -> None:
        if self._notifier is not None:
            self._notifier.setEnabled(False)
            self._notifier.deleteLater()
            self._notifier = None

    def _say(self, sentence: str) -> None:
        if sentence != self._sentence:
            self._sentence = sentence
            self.changed.emit()


def taken(keys: str) -> str:
    """Sentence on keys that another program has."""
    return tr("Another program has {keys}. Choose other keys.", keys=native(keys))


def not_on_keyboard(keys: str) -> str:
    """Sentence on keys that the keyboard, or the desktop, does not have."""
    return tr("This keyboard has no {keys}. Choose other keys.", keys=native(keys))
