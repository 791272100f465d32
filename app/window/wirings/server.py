"""Tells the server for other programs of the engine and its model. No widget is made here."""

from __future__ import annotations

from PySide6.QtCore import QObject

from app.link.link import EngineLink, LinkState
from app.server.state import ServerState


class ServerWiring(QObject):
    """Lives as long as the window."""

    def __init__(self, link: EngineLink, state: ServerState, parent: QObject) -> None:
        super().__init__(parent)
        link.state_changed.connect(lambda now, _: state.set_running(now is LinkState.CONNECTED))
        for changed in (link.welcomed, link.loaded, link.unloaded):
            changed.connect(lambda _: state.set_card(link.card))
