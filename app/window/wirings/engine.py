"""Says in the title row and in Settings what the engine runs on. No widget is made here."""

from __future__ import annotations

from PySide6.QtCore import QObject

from app.link.link import EngineLink, LinkState
from app.settings.engine import EngineSection
from app.window.topbar import TopBar
from app.words import hardware
from engine import protocol


class EngineWiring(QObject):
    """Lives as long as the window."""

    def __init__(self, link: EngineLink, bar: TopBar, settings: EngineSection, parent: QObject) -> None:
        super().__init__(parent)
        self._bar, self._settings = bar, settings
        link.welcomed.connect(self._on_welcome)
        link.state_changed.connect(self._on_state)
        link.loaded.connect(lambda message: settings.set_computing(message.card.computing))
        link.unloaded.connect(lambda _: settings.set_computing(""))

    def _on_welcome(self, message: protocol.Welcome) -> None:
        device = message.device
        self._bar.show_device(hardware(device.name), device.kind.upper())
        self._settings.set_devices(message.devices or [device])

    def _on_state(self, state: LinkState, _sentence: str) -> None:
        if state is not LinkState.CONNECTED:
            self._settings.set_computing("")
