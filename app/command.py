"""One run of a ``kvasir … --json`` command while the window runs: its lines as signals, and its end. No widgets."""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
from PySide6.QtCore import QObject, QProcess, QTimer, Signal

from app.language import tr

log = logging.getLogger(__name__)

KILL_MS = 15_000
"""Milliseconds that a run that was told to stop may take to leave what it has in order."""
CLOSE_MS = 3_000
LAST_WORDS = 8
_OWN_SENTENCE = "kvasir: "
"""Beginning of the line in which the command line says why it failed."""


class End(NamedTuple):
    """Result of a command; ``sentence`` is the reason it failed, ``killed``: without a word of its own on that."""

    ok: bool
    sentence: str = ""
    killed: bool = False


class LineCommand(QObject):
    """Starts at once and waits for nothing. ``ended`` comes once, after the last line, also when it never ran.

    ``decode`` reads a line (it may raise ``msgspec.MsgspecError``); ``name`` is how people call the command, which
    reads what is ``given`` on its standard input.
    """

    reported = Signal(object)
    """Decoded line."""
    ended = Signal(object)
    """The :class:`End`."""

    def __init__(
        self,
        command: Sequence[str],
        arguments: Sequence[str],
        decode: Callable[[str], object],
        name: str,
        parent: QObject,
        given: bytes = b"",
    ) -> None:
        super().__init__(parent)
        self._decode, self._name = decode, name
        self._over = False
        self._rest = b""
        self._last_words: deque[str] = deque(maxlen=LAST_WORDS)
        self._patience = QTimer(self, singleShot=True, interval=KILL_MS)
        self._patience.setObjectName("command-kill")
        self._process = QProcess(self)
        self._patience.timeout.connect(self._process.kill)
        self._process.readyReadStandardOutput.connect(self._read)
        self._process.readyReadStandardError.connect(self._listen)
        self._process.finished.connect(self._on_finished)
        self._process.errorOccurred.connect(self._on_error)
        if not given:
            self._process.setStandardInputFile(QProcess.nullDevice())
        program, *first = command
        self._process.start(program, [*first, *arguments])
        if given:
            self._process.write(given)
            self._process.closeWriteChannel()

    @property
    def warning(self) -> str:
        """Warning in its last words about something it could not do, though it may have ended well; "" for none."""
        words = self._last_words[-1] if self._last_words else ""
        return words.removeprefix(_OWN_SENTENCE) if words.startswith(_OWN_SENTENCE) else ""

    def heard(self, take: Callable[..., object], done: Callable[[End], object]) -> LineCommand:
        """``take`` gets what each line says, ``done`` the end, after which this is deleted."""
        self.reported.connect(take)
        self.ended.connect(done)
        self.ended.connect(self.deleteLater)
        return self

    def stop(self) -> None:
        """Ask it to stop in a state that it can go on from; insist after a while."""
        if self._process.state() is QProcess.ProcessState.NotRunning:
            return
        if sys.platform == "win32":  # no signal reaches a program without a window there
            self._process.kill()
            return
        self._process.terminate()
        self._patience.start()

    def abandon(self) -> None:
        """Nobody wants the answer: it ends in its own time, says nothing more, and is deleted then."""
        self._over = True
        if self._process.state() is QProcess.ProcessState.NotRunning:
            self.deleteLater()
            return
        self._process.finished.connect(self.deleteLater)
        self.stop()

    def drop(self) -> None:
        """The program ends: end it too and say nothing more. Waits 3 seconds at most before it insists."""
        self._over = True
        self.stop()
        self._patience.stop()
        if self._process.state() is not QProcess.ProcessState.NotRunning and not self._process.waitForFinished(
            CLOSE_MS
        ):
            self._process.kill()
            self._process.waitForFinished(CLOSE_MS)

    def _read(self) -> None:
        *lines, self._rest = (self._rest + bytes(self._process.readAllStandardOutput().data())).split(b"\n")
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        if self._over or not line.strip():
            return
        try:
            told = self._decode(line.decode(errors="replace"))
        except msgspec.MsgspecError:
            log.warning("not understood from %s: %s", self._name, line[:500].decode(errors="replace"))
            return
        self.reported.emit(told)

    def _listen(self) -> None:
        for line in bytes(self._process.readAllStandardError().data()).decode(errors="replace").splitlines():
            if line.strip():
                log.info("%s: %s", self._name, line)
                self._last_words.append(line.strip())

    def _on_error(self, error: QProcess.ProcessError) -> None:
        if error is QProcess.ProcessError.FailedToStart:  # of all errors only this one has no `finished` after it
            end = End(
                False, tr("{name} could not be started: {why}.", name=self._name, why=self._process.errorString())
            )
            QTimer.singleShot(0, self, lambda: self._end(end))  # it may come before anybody listens

    def _on_finished(self, code: int, status: QProcess.ExitStatus) -> None:
        self._patience.stop()
        self._read()
        self._take(self._rest)
        self._listen()
        if status is QProcess.ExitStatus.NormalExit and code == 0:
            self._end(End(True))
            return
        exited = status is QProcess.ExitStatus.NormalExit
        how = tr("exit code {code}", code=str(code)) if exited else tr("it was killed")
        words = self._last_words[-1] if self._last_words else ""
        if self.warning:  # a failure that Kvasir's command line knows is a sentence already
            self._end(End(False, self.warning))
        elif words:
            sentence = tr("{name} stopped ({how}): {words}.", name=self._name, how=how, words=words.rstrip("."))
            self._end(End(False, sentence, not exited))
        else:
            self._end(End(False, tr("{name} stopped ({how}).", name=self._name, how=how), not exited))

    def _end(self, end: End) -> None:
        if not self._over:
            self._over = True
            self.ended.emit(end)
