"""Ctrl and the mouse wheel change the text size, wherever in the window the mouse is."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QWheelEvent, QWindow

from app.settings.appearance import Appearance

_NOTCH = 120
"""Angle of one step of a wheel, in eighths of a degree; a touchpad sends pieces of it."""


class WheelZoom(QObject):
    """Watches the desktop's own window, which gets the events of the wheel before the part under the mouse does."""

    def __init__(self, window: QWindow, appearance: Appearance, parent: QObject) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._turned = 0
        window.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is not QEvent.Type.Wheel:
            return False
        assert isinstance(event, QWheelEvent)
        if not event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self._turned = 0
            return False
        self._turned += event.angleDelta().y()
        steps = int(self._turned / _NOTCH)
        if steps:
            self._turned -= steps * _NOTCH
            self._appearance.zoom(steps)
        return True
