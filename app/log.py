"""The log file: rotating, five megabytes in all, also for what Qt and uncaught exceptions have to say."""

from __future__ import annotations

import logging
import re
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType

from PySide6.QtCore import QMessageLogContext, QtMsgType, qInstallMessageHandler

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
HIDDEN = "[hidden]"
_SECRETS = (
    re.compile(r"\b(?:hf_|sk-|kv-|ghp_|github_pat_|xox[a-z]-|AIza)[\w-]{12,}"),
    re.compile(r"(?i)(?<=bearer )[\w.~+/=-]{8,}"),
    re.compile(r"(?i)(?<=basic )[\w+/=]{8,}"),
    re.compile(r"""(?i)(?:api[_-]?key|token|secret|password|passwd)["']?\s*[=:]\s*["']?(?P<value>[^\s"'&,;)}]{6,})"""),
    re.compile(r"(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"),
)
"""Keys of services by their beginnings, values of what is called a key, and passwords in addresses."""
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
    handler.setFormatter(_Discreet(_FORMAT))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    qInstallMessageHandler(_from_qt)
    sys.excepthook = _uncaught
    return path


def without_secrets(text: str) -> str:
    """Text in whose place of keys and passwords stands :data:`HIDDEN`."""
    for pattern in _SECRETS:
        text = pattern.sub(_hide, text)
    return text


def _hide(match: re.Match[str]) -> str:
    value = match.groupdict().get("value")
    return HIDDEN if value is None else match[0][: match.start("value") - match.start()] + HIDDEN


class _Discreet(logging.Formatter):
    """A formatter that writes no keys: people show their log to others."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


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
    logging.getLogger("app").error("uncaught exception", exc_info=(kind, error, trace))  # not shown
    sys.__excepthook__(kind, error, trace)
