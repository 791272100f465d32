"""The start of the window's process: one instance, a log, the engine, and only then everything else."""

from __future__ import annotations

import gc
import logging
import signal
import socket
import sys
import time
from collections.abc import Sequence

from PySide6.QtCore import QObject, QSocketNotifier
from PySide6.QtWidgets import QApplication, QMessageBox

from app import language, paths
from app import log as log_file
from app.history.schema import HistoryUnusableError
from app.language import tr
from app.link.link import EngineLink
from app.opening import Application, path_of
from app.single import SingleInstance, UnansweredError
from app.theme.icons import app_icon
from engine.base.collector import no_collection

log = logging.getLogger(__name__)

QUICK = "--quick"
"""Argument that opens the quick chat (engine/doors/cli/window.py knows it, too)."""
_UNSEEN = ("offscreen", "minimal")
"""Platforms without a screen, where nobody could close a box."""


def run(arguments: Sequence[str], started: float, engine: Sequence[str] | None = None) -> int:
    """Run until the window is closed; ``started`` is the perf_counter of the process's beginning.

    ``engine`` is the command that starts the engine; None is Kvasir's own.
    """
    app = Application(list(arguments))
    app.setApplicationName("Kvasir")
    app.setDesktopFileName("kvasir")
    app.setWindowIcon(app_icon())
    language.install(app)
    link = None
    try:
        single = SingleInstance(paths.data_dir())
        # Those that Qt has left of ours: on Windows its list begins with the interpreter's own.
        model = path_of([argument for argument in app.arguments() if argument in arguments[1:]])
        quick = QUICK in arguments
        if not single.acquire(model, quick):
            return 0
        log_path = log_file.start(paths.log_dir())
        # The engine takes seconds to start: it begins before the modules of the window are imported.
        link = EngineLink(engine)
        link.start()
        with no_collection():
            from app.program import WindowProgram

            gc.freeze()  # modules stay: nobody need look for garbage among them while a window is drawn
        program = WindowProgram(app, log_path, engine, link=link)
    except (HistoryUnusableError, UnansweredError) as error:
        return _refuse(app, str(error), link)
    except OSError as error:
        what = f"{error.filename} ({error.strerror})" if error.filename else str(error)
        sentence = tr("Kvasir cannot use {what}. Allow writing there, or set KVASIR_HOME to another folder.", what=what)
        return _refuse(app, sentence, link)
    program.window.painted.connect(lambda: log.info("window visible after %.2f s", time.perf_counter() - started))
    for asked in (single.raised, app.file_opened):
        asked.connect(program.raise_for)
    single.quick_asked.connect(program.quick.open)
    signals = _SignalExit(app)
    if model:
        program.opener.open(model)
    program.window.show()
    if quick:
        program.quick.open()
    try:
        return app.exec()
    finally:
        program.close()
        signals.restore()
        single.release()
        log_file.stop()


def _refuse(app: QApplication, sentence: str, link: EngineLink | None) -> int:
    """Without its history the program does not start; the sentence goes to whoever started it, on either channel."""
    if link is not None:
        link.shutdown()
    if logging.getLogger().hasHandlers():  # else it would go to standard error twice
        log.error("%s", sentence)
    sys.stderr.write(sentence + "\n")
    if app.platformName() not in _UNSEEN:
        box = QMessageBox(QMessageBox.Icon.Critical, "Kvasir", sentence)
        box.show()
        app.exec()
    return 1


class _SignalExit(QObject):
    """Ctrl-C and a polite kill close the program as its window's button does."""

    def __init__(self, app: QApplication) -> None:
        super().__init__(app)
        self._read, self._write = socket.socketpair()
        self._write.setblocking(False)
        self._old_fd = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        # Python runs its handlers only between bytecodes, so a byte on the socket wakes Qt's loop.
        self._notifier = QSocketNotifier(self._read.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(app.quit)
        self._old = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore(self) -> None:
        signal.set_wakeup_fd(self._old_fd)
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._notifier.setEnabled(False)
        self._read.close()
        self._write.close()
