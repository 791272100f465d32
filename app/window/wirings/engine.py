"""Says in the title row and in Settings what the engine runs on. No widget is made here."""

from __future__ import annotations

from PySide6.QtCore import QObject

from app.link.link import EngineLink, LinkState
from app.settings.page import SettingsPage
from app.window.topbar import TopBar
from engine import protocol


class EngineWiring(QObject):
    """Lives as long as the window."""

    def __init__(self, link: EngineLink, bar: TopBar, settings_page: SettingsPage, parent: QObject) -> None:
        super().__init__(parent)
        self._bar, self._settings_page = bar, settings_page
        link.welcomed.connect(self._on_welcome)
        link.state_changed.connect(self._on_state)
        link.loaded.connect(lambda message: settings_page.set_computing(message.card.computing))
        link.unloaded.connect(lambda _: settings_page.set_computing(""))

    def _on_welcome(self, message: protocol.Welcome) -> None:
        device = message.device
        self._bar.show_device(device.name, device.kind.upper())
        self._settings_page.set_devices(message.devices or [device])

    def _on_state(self, state: LinkState, _sentence: str) -> None:
        if state is not LinkState.CONNECTED:
            self._settings_page.set_computing("")
