"""The quick chat with its global shortcut, the tray, the settings and a second start."""

from __future__ import annotations

from PySide6.QtCore import QObject

from app.quick.choose import shortcut_here
from app.quick.window import QuickChat
from app.settings.desktop import DesktopSection
from app.settings.store import SettingsStore
from app.theme.keys import unusable
from app.theme.theme import Theme
from app.window.desktop import Desktop
from app.window.window import MainWindow


class QuickWiring(QObject):
    """Lives as long as the window. The quick chat is made when it is first asked for."""

    def __init__(
        self, store: SettingsStore, desktop: Desktop, settings: DesktopSection, window: MainWindow, theme: Theme
    ) -> None:
        super().__init__(window)
        self._store, self._window, self._theme = store, window, theme
        self._settings = settings
        desktop.seen = lambda: self.chat is not None and self.chat.in_front
        settings.choosing_keys.connect(self._on_choosing)
        self.chat: QuickChat | None = None
        self.shortcut = shortcut_here(self)
        self.shortcut.pressed.connect(self.toggle)
        self.shortcut.changed.connect(self._tell)
        window.quick_asked.connect(self.open)
        desktop.quick_asked.connect(self.open)
        store.changed.connect(lambda names: self._hold() if "quick_keys" in names else None)
        self._hold()

    def open(self) -> None:
        self._made().open()

    def toggle(self) -> None:
        self._made().toggle()

    def close_down(self) -> None:
        """Before the program ends."""
        self.shortcut.close_down()
        if self.chat is not None:
            self.chat.close_down()
            self.chat = None

    def _made(self) -> QuickChat:
        if self.chat is None:
            self.chat = QuickChat(self._window.chat, self._theme)
            self.chat.main_asked.connect(self._show_main)
        return self.chat

    def _show_main(self) -> None:
        self._window.presence.to_front()
        self._window.show_page(MainWindow.CHAT)

    @property
    def _unusable(self) -> str:
        """Reason the keys in the settings are none: anything can be written into the file."""
        keys = self._store.settings.quick_keys
        return unusable(keys) if keys else ""

    def _hold(self) -> None:
        self.shortcut.hold("" if self._unusable else self._store.settings.quick_keys)
        self._tell()

    def _on_choosing(self, on: bool) -> None:
        """While others are pressed the present keys open nothing."""
        if on:
            self.shortcut.hold("")
        else:
            self._hold()

    def _tell(self) -> None:
        self._settings.say_keys(self._unusable or self.shortcut.sentence)
