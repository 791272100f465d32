"""Which kind of shortcut this desktop has."""

from __future__ import annotations

import os
import sys

from PySide6.QtCore import QObject
from PySide6.QtGui import QGuiApplication

from app.quick.shortcut import GlobalShortcut


def shortcut_here(parent: QObject) -> GlobalShortcut:
    """Return the kind of the desktop that the program is on."""
    platform = QGuiApplication.platformName()
    if sys.platform == "win32":
        import ctypes

        from app.quick.windows import WindowsShortcut

        return WindowsShortcut(ctypes.windll.user32, parent)
    if platform == "wayland" or (platform == "xcb" and os.environ.get("WAYLAND_DISPLAY")):
        from app.quick.portal import PortalShortcut

        return PortalShortcut(parent)
    if platform == "xcb":
        from app.quick.x11 import X11Shortcut

        return X11Shortcut(parent)
    return GlobalShortcut(parent)
