"""One instance of the program per data folder: a second start raises the first one's window.

A lock in the data folder says which is the first, and a file next to it where that one listens: both are the same
whatever a session has for its own temporary folder. The second one writes one JSON object, :class:`Greeting`, on a
line, waits for the answer and goes.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from pathlib import Path
from typing import cast

import msgspec
from PySide6.QtCore import QDir, QEventLoop, QLockFile, QObject, QTimer, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from app.files import UNREADABLE, read_small
from app.language import tr

log = logging.getLogger(__name__)

LOCK, ADDRESS = "window.lock", "window.address"
"""Files in the data folder (engine/doors/cli/installation/running.py knows them too)."""
ANSWER_S = 10.0
"""Seconds that the first instance may be busy, or about to end, or about to listen."""
_PAUSE_MS = 100
_ANSWER = b"here\n"
_MOST_PATH = 100
"""Characters of a socket's path that every system takes."""
ACTIVATION = "XDG_ACTIVATION_TOKEN"
"""A token with which a Wayland desktop lets the first instance come to the front for the second; Qt reads it there."""
MOST_BYTES = 65_536
"""Largest size of a greeting."""


class UnansweredError(Exception):
    """Another instance runs and does not answer; the text says which, and what to do."""


class Greeting(msgspec.Struct):
    path: str = ""
    """The model to open, absolute; "" for none."""
    activation: str = ""
    quick: bool = False
    """The quick chat is wanted, and not the window."""


class SingleInstance(QObject):
    """Single instance of the program for the data folder ``data``. ``raised`` is emitted in the first instance when
    another one starts, with the path of the model it was given; ``quick_asked`` if that was to open the quick chat."""

    raised = Signal(str)
    quick_asked = Signal()

    def __init__(self, data: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._data = data.resolve()
        self._lock = QLockFile(str(self._data / LOCK))
        self._lock.setStaleLockTime(0)  # it is held for as long as the program runs
        self._server: QLocalServer | None = None
        self._talking: list[QLocalSocket] = []

    def acquire(self, path: str = "", quick: bool = False) -> bool:
        """True for the first instance; False when another one runs, which now comes to the front and opens ``path``, or
        opens its ``quick`` chat.

        Raises UnansweredError.
        """
        until = time.monotonic() + ANSWER_S
        while not self._lock.tryLock(0):
            if self._lock.error() is not QLockFile.LockError.LockFailedError:
                log.warning("cannot lock %s", self._data / LOCK)  # whoever opens the history there says why
                return True
            if self._greet_first(Greeting(path, os.environ.get(ACTIVATION, ""), quick), until):
                return False
            if time.monotonic() >= until:
                raise UnansweredError(self._unanswered())
            _wait(_PAUSE_MS)
        self._listen()
        return True

    def release(self) -> None:
        if self._server is not None:
            self._talking.clear()
            self._server.close()
            self._server = None
            with contextlib.suppress(OSError):
                (self._data / ADDRESS).unlink()
        self._lock.unlock()

    def _unanswered(self) -> str:
        process, host, _ = cast(tuple[int, str, str], self._lock.getLockInfo())
        if process:
            return tr(
                "Kvasir runs already (process {process} on {host}) and does not answer. Wait until its window reacts "
                "again, or end that process; then start Kvasir again. Its chats are in {folder}.",
                process=str(process),
                host=host,
                folder=self._data,
            )
        return tr(
            "Kvasir runs already and does not answer. Wait until its window reacts again, or end that process; "
            "then start Kvasir again. Its chats are in {folder}.",
            folder=self._data,
        )

    def _greet_first(self, words: Greeting, until: float) -> bool:
        """Send this to the first instance and return True if it answered."""
        try:
            address = read_small(self._data / ADDRESS, MOST_BYTES).decode()
        except UNREADABLE:  # it does not listen yet
            return False
        socket, loop = QLocalSocket(), QEventLoop()
        greeting = msgspec.json.encode(words) + b"\n"
        socket.connected.connect(lambda: socket.write(greeting))
        socket.readyRead.connect(loop.quit)
        socket.disconnected.connect(loop.quit)
        socket.errorOccurred.connect(lambda _: loop.quit())
        QTimer.singleShot(0, loop, lambda: socket.connectToServer(address))
        QTimer.singleShot(max(1, round(1000 * (until - time.monotonic()))), loop, loop.quit)
        loop.exec()
        answered = bytes(socket.readLine(MOST_BYTES).data()) == _ANSWER
        socket.abort()
        return answered

    def _listen(self) -> None:
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._greet)
        try:
            if not any(map(self._listens_at, _places(self._data))):
                raise OSError(self._server.errorString())
            (self._data / ADDRESS).write_text(self._server.fullServerName(), "utf-8")
        except OSError as error:  # without a socket we only lose the raising of this window
            log.warning("cannot listen for a second start: %s", error)

    def _listens_at(self, name: str) -> bool:
        assert self._server is not None
        QLocalServer.removeServer(name)  # a socket file that a crash left behind is in the way
        return self._server.listen(name)

    def _greet(self) -> None:
        assert self._server is not None
        while (socket := self._server.nextPendingConnection()) is not None:
            self._talking.append(socket)
            socket.readyRead.connect(self._hear)
            socket.disconnected.connect(self._hear)
        self._hear()

    def _hear(self) -> None:
        """Take the greetings that are whole; some had come before their signals could be connected."""
        gone = QLocalSocket.LocalSocketState.UnconnectedState
        for socket in [socket for socket in self._talking if socket.canReadLine() or socket.state() is gone]:
            self._talking.remove(socket)
            greeting = _understand(bytes(socket.readLine(MOST_BYTES).data()))
            socket.write(_ANSWER)
            socket.flush()
            socket.disconnected.connect(socket.deleteLater)
            socket.disconnectFromServer()
            if greeting.activation:
                os.environ[ACTIVATION] = greeting.activation
            if greeting.quick:
                self.quick_asked.emit()
            else:
                self.raised.emit(greeting.path)


def _places(data: Path) -> list[str]:
    """Names under which the first instance for this data folder may listen: in the user's runtime folder, or in one for
    temporary files; on Windows a pipe. Names too long for a socket are left out."""
    name = "kvasir-" + hashlib.sha256(str(data).encode()).hexdigest()[:16]
    if os.name == "nt":
        return [name]
    folders = [os.environ.get("XDG_RUNTIME_DIR", ""), QDir.tempPath(), "/tmp"]
    paths = [f"{folder}/{name}" for folder in folders if folder and Path(folder).is_dir()]
    return [path for path in paths if len(path) <= _MOST_PATH]


def _wait(milliseconds: int) -> None:
    loop = QEventLoop()
    QTimer.singleShot(milliseconds, loop, loop.quit)
    loop.exec()


def _understand(words: bytes) -> Greeting:
    """Whoever says nothing, or nothing that can be understood, wants the window."""
    if not words:
        return Greeting()
    try:
        return msgspec.json.decode(words, type=Greeting)
    except UNREADABLE:
        log.warning("a second start said something that was not understood")
        return Greeting()
