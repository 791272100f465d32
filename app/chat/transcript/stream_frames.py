"""Frames in which streaming answers are painted: so many a second, and fewer where each takes long."""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer

from app.chat.session.answers import PartialAnswer

FRAME_MS = 33
PATIENCE = 4
"""A frame that took long is followed by a pause of this many times as long, so that the window stays at hand."""

Snapshot = Callable[[], PartialAnswer]
"""An answer as far as it is written."""


class StreamFrames(QObject):
    """``paint`` gets the answers with new text by their ids, and returns True if one of them has a widget."""

    def __init__(self, paint: Callable[[dict[str, Snapshot]], bool], parent: QObject) -> None:
        super().__init__(parent)
        self._paint = paint
        self._pending: dict[str, Snapshot] = {}
        self._timer = QTimer(self, singleShot=True, interval=FRAME_MS)
        self._timer.setObjectName("transcript-frame")
        self._timer.timeout.connect(self.paint)

    def add(self, message_id: str, snapshot: Snapshot) -> None:
        """New text has come; ``snapshot`` is asked for all of it when the next frame is painted."""
        self._pending[message_id] = snapshot
        if not self._timer.isActive():
            self._timer.start()

    def forget(self, message_id: str) -> None:
        """All of that answer is shown already."""
        self._pending.pop(message_id, None)

    def clear(self) -> None:
        """The same of all answers."""
        self._pending.clear()

    def paint(self) -> None:
        """Paint a frame now."""
        pending, self._pending = self._pending, {}
        began = time.monotonic()
        if self._paint(pending):
            spent = 1000 * (time.monotonic() - began)
            self._timer.setInterval(round(max(FRAME_MS, PATIENCE * spent)))

    def stop(self) -> None:
        """Paint no more (the program closes)."""
        self._timer.stop()
