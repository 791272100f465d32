"""Long work of the window's thread, a step of it in each turn of the event loop."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtWidgets import QApplication


class StepRunner(QObject):
    """Runs ``work`` to its end: each step ends at a ``yield``, and what waits has its turn before the next one."""

    ended = Signal()

    def __init__(self, work: Iterator[None], parent: QObject) -> None:
        super().__init__(parent)
        self._work = work
        self._next = QTimer(self, interval=0)
        self._next.timeout.connect(self.step)
        self._next.start()

    @property
    def over(self) -> bool:
        return not self._next.isActive()

    def step(self) -> None:
        for _ in self._work:
            # Layouts ask each other for room by events, and a frame between them has parts that lie over each other.
            QApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest.value)
            return
        self._next.stop()
        self.ended.emit()
