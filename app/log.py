"""The log file: rotating, five megabytes in all, also for what Qt and uncaught exceptions have to say."""

from __future__ import annotations

import logging
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType

from PySide6.QtCore import QMessageLogContext, QtMsgType, qInstallMessageHandler

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}


def start(folder: Path) -> Path:
    """Send the root logger, Qt's messages and uncaught exceptions to ``folder``/kvasir.log; returns that path.

    Raises OSError when the folder cannot be written.
    """
    path = folder / "kvasir.log"
    handler = RotatingFileHandler(path, maxBytes=1_000_000, backupCount=4, encoding="utf-8")
    handler.setFormatter(logging.Formatter(_FORMAT))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    qInstallMessageHandler(_from_qt)
    sys.excepthook = _uncaught
    return path


def stop() -> None:
    """Undo :func:`start` (tests start and stop the program in one process)."""
    qInstallMessageHandler(None)
    sys.excepthook = sys.__excepthook__
    root = logging.getLogger()
    for handler in [h for h in root.handlers if isinstance(h, RotatingFileHandler)]:
        root.removeHandler(handler)
        handler.close()


def _from_qt(kind: QtMsgType, context: QMessageLogContext, text: str) -> None:
    logging.getLogger("qt").log(_LEVELS.get(kind, logging.WARNING), text)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger("app").error("uncaught exception", exc_info=(kind, error, trace))
    sys.__excepthook__(kind, error, trace)
