"""Global shortcuts on X11, by a grab on the root window (Xlib's XGrabKey)."""

from __future__ import annotations

import logging
from typing import Any

from PySide6.QtCore import QObject
from Xlib import XK, X
from Xlib.display import Display
from Xlib.error import BadAccess, CatchError, ConnectionClosedError, DisplayError

from app.language import tr
from app.quick.keysyms import keysym_name
from app.quick.shortcut import BIND, Combination, GlobalShortcut, not_on_keyboard, taken

log = logging.getLogger(__name__)

_MASKS = {"Ctrl": X.ControlMask, "Alt": X.Mod1Mask, "Shift": X.ShiftMask, "Meta": X.Mod4Mask}
_LOCKS = (0, X.LockMask, X.Mod2Mask, X.LockMask | X.Mod2Mask)
"""Caps Lock and Num Lock are modifiers, too: the keys work with either."""


class X11Shortcut(GlobalShortcut):
    """Has a connection of its own to the display while keys are held."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._display: Display | None = None
        self._keys = ""
        self._released_ms = -1
        """The server's time at which the key was let go last."""

    def hold(self, keys: str) -> None:
        self.close_down()
        self._keys = keys
        if not keys:
            self._say("")
            return
        try:
            self._display = Display()
        except (DisplayError, OSError) as error:
            log.warning("no connection to the display for keys of the desktop: %s", error)
            self._say(f"{tr('Kvasir cannot reach the display to set a global shortcut.')} {BIND}")
            return
        self._listen(self._display.fileno(), self._read)
        self._say(self._grab())

    def close_down(self) -> None:
        """Give the keys back: the server takes them from a connection that ends."""
        self._stop_listening()
        display, self._display = self._display, None
        if display is not None:
            display.close()

    def _grab(self) -> str:
        """Reason that the keys could not be had."""
        assert self._display is not None
        display, wanted = self._display, Combination.of(self._keys)
        name = keysym_name(wanted.key)
        # Letters of Latin-1 are keysyms themselves (X11/keysymdef.h).
        code = display.keysym_to_keycode(XK.string_to_keysym(name) or (ord(name) if len(name) == 1 else 0))
        if not code:
            return not_on_keyboard(self._keys)
        mask, refused = sum(_MASKS[each] for each in wanted.modifiers), CatchError(BadAccess)
        root = display.screen().root
        for locks in _LOCKS:
            root.grab_key(code, mask | locks, False, X.GrabModeAsync, X.GrabModeAsync, onerror=refused)
        display.sync()
        if refused.get_error() is None:
            return ""
        root.ungrab_key(code, X.AnyModifier)
        display.sync()
        return taken(self._keys)

    def _read(self) -> None:
        display = self._display
        try:
            while self._display is display and display is not None and display.pending_events():
                self._take(display.next_event())
        except (ConnectionClosedError, OSError) as error:  # the whole window loses its display now
            log.warning("the display is gone: %s", error)
            self.close_down()

    def _take(self, event: Any) -> None:
        if event.type == X.KeyRelease:
            self._released_ms = event.time
        elif event.type == X.KeyPress and event.time != self._released_ms:  # a key that repeats is let go and pressed
            self.pressed.emit()
        elif event.type == X.MappingNotify and event.request != X.MappingPointer:  # another keyboard, or layout
            assert self._display is not None
            self._display.refresh_keyboard_mapping(event)
            self._display.screen().root.ungrab_key(X.AnyKey, X.AnyModifier)
            self._say(self._grab())
