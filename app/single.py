"""One instance of the program per user and data folder: a second start raises the first one's window.

The second one writes one JSON object, :class:`Greeting`, and goes.
"""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

import msgspec
from PySide6.QtCore import QDir, QLockFile, QObject, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

log = logging.getLogger(__name__)

_WAIT_MS = 500
_LOCK_MS = 3_000
_ACTIVATION = "XDG_ACTIVATION_TOKEN"
"""A token with which a Wayland desktop lets the first instance come to the front for the second; Qt reads it there."""
MOST_BYTES = 65_536
"""Largest size of a greeting."""


class Greeting(msgspec.Struct):
    path: str = ""
    """The model to open, absolute; "" for none."""
    activation: str = ""


def socket_name(data: Path) -> str:
    """A name of its own for every data folder; a socket file's path may not exceed about 100 characters."""
    return "kvasir-" + hashlib.sha256(str(data.resolve()).encode()).hexdigest()[:16]


class SingleInstance(QObject):
    """``raised`` is emitted in the first instance when another one starts, with the path of the model it was given."""

    raised = Signal(str)

    def __init__(self, name: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._name = name
        self._server: QLocalServer | None = None
        self._talking: list[QLocalSocket] = []

    def acquire(self, path: str = "") -> bool:
        """True for the first instance; False when another one runs, which now comes to the front and opens ``path``."""
        # Two clicks on the icon start two at once: the second waits until the first one listens.
        lock = QLockFile(QDir.temp().filePath(self._name + ".lock"))
        lock.tryLock(_LOCK_MS)
        try:
            return not self._greet_first(path) and self._listen()
        finally:
            lock.unlock()

    def release(self) -> None:
        if self._server is not None:
            self._talking.clear()
            self._server.close()
            self._server = None

    def _greet_first(self, path: str) -> bool:
        """Whether there was somebody to greet."""
        socket = QLocalSocket()
        socket.connectToServer(self._name)
        if not socket.waitForConnected(_WAIT_MS):
            return False
        socket.write(msgspec.json.encode(Greeting(path, os.environ.get(_ACTIVATION, ""))))
        socket.waitForBytesWritten(_WAIT_MS)
        socket.disconnectFromServer()
        return True

    def _listen(self) -> bool:
        # Nobody answers: a socket file that a crash left behind is in the way of listening.
        QLocalServer.removeServer(self._name)
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._greet)
        if not self._server.listen(self._name):
            # A second window is better than none: without a socket we only lose the raising of the first.
            log.warning("cannot listen for a second start: %s", self._server.errorString())
        return True

    def _greet(self) -> None:
        assert self._server is not None
        while (socket := self._server.nextPendingConnection()) is not None:
            self._talking.append(socket)
            socket.disconnected.connect(self._hear)
        self._hear()

    def _hear(self) -> None:
        """Read the greetings of all that have disconnected; some did so before their signal could be connected."""
        over = [socket for socket in self._talking if socket.state() is QLocalSocket.LocalSocketState.UnconnectedState]
        for socket in over:
            self._talking.remove(socket)
            greeting = _understand(bytes(socket.read(MOST_BYTES).data()))
            socket.deleteLater()
            if greeting.activation:
                os.environ[_ACTIVATION] = greeting.activation
            self.raised.emit(greeting.path)


def _understand(words: bytes) -> Greeting:
    """Whoever says nothing, or nothing that can be understood, wants the window."""
    if not words:
        return Greeting()
    try:
        return msgspec.json.decode(words, type=Greeting)
    except msgspec.MsgspecError:
        log.warning("a second start said something that was not understood")
        return Greeting()
