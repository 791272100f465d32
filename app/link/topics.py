"""Topics that the engine sends unasked: telemetry always, the maps of the cache only while somebody looks at them."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer

from app.link.link import EngineLink, LinkState
from engine import protocol

ALWAYS = frozenset({"telemetry"})
RATE = 10.0
"""Most frames of each topic a second."""


class Topics(QObject):
    """Each watcher names its topics; the engine gets their union, and hears only of changes.

    A hiding and a showing in one turn of the event loop (a folded part makes room for another) change nothing.
    """

    def __init__(self, link: EngineLink, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._wanted: dict[str, frozenset[str]] = {}
        self._sent = ALWAYS
        self._timer = QTimer(self, singleShot=True, interval=0)
        self._timer.timeout.connect(self._tell)
        link.state_changed.connect(self._on_state)

    @property
    def wanted(self) -> frozenset[str]:
        return ALWAYS.union(*self._wanted.values())

    def watch(self, watcher: str, topics: frozenset[str]) -> None:
        """``topics`` take the place of what ``watcher`` named before; none when it looks away."""
        self._wanted[watcher] = topics
        self._timer.start()

    def stop(self) -> None:
        """The program closes."""
        self._timer.stop()

    def _on_state(self, state: LinkState, _sentence: str) -> None:
        if state is LinkState.CONNECTED:  # each connection begins with telemetry alone
            self._sent = ALWAYS
            self._tell()

    def _tell(self) -> None:
        if self.wanted != self._sent and self._link.state is LinkState.CONNECTED:
            self._sent = self.wanted
            self._link.send(protocol.Subscribe(topics=sorted(self.wanted), rate=RATE))
