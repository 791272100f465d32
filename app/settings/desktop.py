"""Settings of what Kvasir does on the desktop: notifications, the tray, and the quick chat's global shortcut."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QSystemTrayIcon

from app.language import together, tr
from app.settings.rows import SettingRow, SettingSection
from app.settings.store import SettingsStore, UserSettings
from app.theme.keys import HOW, KeyCell, native, unusable
from app.theme.numbers import WholeNumber
from app.theme.theme import Theme
from app.theme.widgets import named, say, show_checked


class DesktopSection(SettingSection):
    """``choosing_keys``: the person begins to press keys for the quick chat, or has done so."""

    choosing_keys = Signal(bool)

    def __init__(self, store: SettingsStore, theme: Theme) -> None:
        super().__init__(tr("Notifications and tray"), store, theme)
        self._notifications()
        self._tray()
        self._quick()

    def say_keys(self, sentence: str) -> None:
        """Say below the global shortcut why it does not work, or other keys do; "": nothing is to be said."""
        say(self._said, sentence)

    def _notifications(self) -> None:
        tell = self.toggle("notify")
        after = named(WholeNumber(grouped=True), "settings.notify_after", suffix=" s", singleStep=5)
        after.setRange(1, 3600)
        after.valueChanged.connect(lambda value: self._store.update(notify_after=value))

        def show(now: UserSettings) -> None:
            show_checked(tell, now.notify)
            after.setEnabled(now.notify)

        about = tr(
            "Of an answer that took long, a download, or a model that was made, while the window is not in front."
        )
        self.add(SettingRow(tr("Notify"), about, tell, ("notify",), show))
        self.add(SettingRow(tr("Notify of answers that took longer than"), "", after, ("notify_after",)))

    def _tray(self) -> None:
        tray, close = self.toggle("tray"), self.toggle("close_to_tray")

        def show(now: UserSettings) -> None:
            show_checked(tray, now.tray)
            close.setEnabled(now.tray)  # without the icon nothing would bring the window back

        about = tr("Shows or hides the window, begins a chat, quits.")
        if not QSystemTrayIcon.isSystemTrayAvailable():
            about = together(about, tr("This desktop has no tray now."))
        self.add(SettingRow(tr("Icon in the tray"), about, tray, ("tray",), show))
        about = tr("The command Quit ends it.")
        self.add(SettingRow(tr("Closing the window leaves Kvasir in the tray"), about, close, ("close_to_tray",)))

    def _quick(self) -> None:
        keys = KeyCell("quick", tr("Quick chat"))
        keys.asked.connect(lambda: self.choosing_keys.emit(True))
        keys.asked.connect(lambda: self.say_keys(HOW))
        keys.left.connect(lambda: self.choosing_keys.emit(False))
        keys.pressed.connect(self._choose)
        about = tr("Opens a small window for a question, whichever window is in front.")
        row = tr("Global shortcut of the quick chat"), about, keys, ("quick_keys",)
        self.add(SettingRow(*row, lambda now: keys.show_keys(native(now.quick_keys))))
        self._said = self.add_note("settings.quick")

    def _choose(self, keys: str) -> None:
        why = unusable(keys) if keys else ""
        if not why:
            self._store.update(quick_keys=keys)
        self.choosing_keys.emit(False)
        if why:
            self.say_keys(why)
