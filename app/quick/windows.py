"""Global shortcuts on Windows (RegisterHotKey, whose WM_HOTKEY comes to the thread's queue)."""

from __future__ import annotations

from ctypes import wintypes
from typing import Protocol

from PySide6.QtCore import QAbstractNativeEventFilter, QByteArray, QCoreApplication, QObject, SignalInstance

from app.quick.shortcut import Combination, GlobalShortcut, not_on_keyboard, taken

WM_HOTKEY = 0x0312
_MODIFIERS = {"Alt": 0x1, "Ctrl": 0x2, "Shift": 0x4, "Meta": 0x8}
_NO_REPEAT = 0x4000
_ID = 1
_CODES = {
    "Backspace": 0x08,
    "Tab": 0x09,
    "Return": 0x0D,
    "Enter": 0x0D,
    "Pause": 0x13,
    "Esc": 0x1B,
    "Space": 0x20,
    "PgUp": 0x21,
    "PgDown": 0x22,
    "End": 0x23,
    "Home": 0x24,
    "Left": 0x25,
    "Up": 0x26,
    "Right": 0x27,
    "Down": 0x28,
    "Ins": 0x2D,
    "Del": 0x2E,
    **{f"F{number}": 0x6F + number for number in range(1, 25)},
}
"""Virtual-key codes of keys that type nothing, by what Qt calls them."""


class User32(Protocol):
    """What is used of user32.dll."""

    def RegisterHotKey(self, window: None, number: int, modifiers: int, code: int) -> int: ...
    def UnregisterHotKey(self, window: None, number: int) -> int: ...
    def VkKeyScanW(self, letter: int) -> int: ...


class WindowsShortcut(GlobalShortcut):
    """``user32``: the system's library."""

    def __init__(self, user32: User32, parent: QObject) -> None:
        super().__init__(parent)
        self._user32 = user32
        self._held = False
        self._filter = _HotKeys(self.pressed)
        QCoreApplication.instance().installNativeEventFilter(self._filter)  # type: ignore[union-attr]

    def hold(self, keys: str) -> None:
        self._give_back()
        self._say(self._register(keys) if keys else "")

    def close_down(self) -> None:
        self._give_back()
        QCoreApplication.instance().removeNativeEventFilter(self._filter)  # type: ignore[union-attr]

    def _register(self, keys: str) -> str:
        """Reason that the keys could not be had."""
        wanted = Combination.of(keys)
        code = _CODES.get(wanted.key, 0)
        if not code and len(wanted.key) == 1:
            # Its upper half tells which modifiers type the letter, -1 that no key does.
            found = self._user32.VkKeyScanW(ord(wanted.key.lower()))
            code = found & 0xFF if found & 0xFFFF != 0xFFFF else 0
        if not code:
            return not_on_keyboard(keys)
        modifiers = sum(_MODIFIERS[each] for each in wanted.modifiers) | _NO_REPEAT
        self._held = bool(self._user32.RegisterHotKey(None, _ID, modifiers, code))
        return "" if self._held else taken(keys)

    def _give_back(self) -> None:
        if self._held:
            self._user32.UnregisterHotKey(None, _ID)
            self._held = False


class _HotKeys(QAbstractNativeEventFilter):
    """Emits ``pressed`` for the message of the shortcut."""

    def __init__(self, pressed: SignalInstance) -> None:
        super().__init__()
        self._pressed = pressed

    def nativeEventFilter(self, kind: QByteArray | bytes | bytearray | memoryview, message: int) -> object:
        if QByteArray(kind).startsWith(b"windows"):
            said = wintypes.MSG.from_address(int(message))
            if said.message == WM_HOTKEY and said.wParam == _ID:
                self._pressed.emit()
        return False, 0
