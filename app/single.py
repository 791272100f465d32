"""One instance of the program per user and data folder: a second start raises the first one's window."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from PySide6.QtCore import QObject, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

log = logging.getLogger(__name__)

_WAIT_MS = 500


def socket_name(data: Path) -> str:
    """A name of its own for every data folder; a socket file's path may not exceed about 100 characters."""
    return "kvasir-" + hashlib.sha256(str(data.resolve()).encode()).hexdigest()[:16]


class SingleInstance(QObject):
    """``raised`` is emitted in the first instance when another one is started."""

    raised = Signal()

    def __init__(self, name: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._name = name
        self._server: QLocalServer | None = None

    def acquire(self) -> bool:
        """True for the first instance; False when another one runs, which is then asked to come to the front."""
        socket = QLocalSocket()
        socket.connectToServer(self._name)
        if socket.waitForConnected(_WAIT_MS):
            socket.disconnectFromServer()
            return False
        # Nobody answers: a socket file that a crash left behind is in the way of listening.
        QLocalServer.removeServer(self._name)
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._greet)
        if not self._server.listen(self._name):
            # A second window is better than none: without a socket we only lose the raising of the first.
            log.warning("cannot listen for a second start: %s", self._server.errorString())
        return True

    def release(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _greet(self) -> None:
        assert self._server is not None
        while (socket := self._server.nextPendingConnection()) is not None:
            socket.deleteLater()
            self.raised.emit()
