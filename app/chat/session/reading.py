"""Files that become documents of a message: each is read by a process of its own, a few at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal

from app.command import End, LineCommand
from app.documents import child
from app.documents.records import ReadText, document
from app.history.records import Attached
from app.language import tr

AT_ONCE = 2
_PATIENCE_MS = round(1000 * (child.SECONDS + 10))
"""After which a process that does not keep its own bounds is ended."""


class DocumentReader(QObject):
    """``command`` starts the process that reads; None is Kvasir's own."""

    changed = Signal()
    """A file was read, or could not be."""

    def __init__(self, parent: QObject, command: Sequence[str] | None = None) -> None:
        super().__init__(parent)
        self._command = list(command) if command is not None else child.command()
        self._waiting: deque[tuple[Path, Attached]] = deque()
        self._running: dict[LineCommand, Attached] = {}

    def read(self, path: Path) -> Attached:
        """Begin to read a file; what is returned says what came of it once :attr:`changed` is emitted."""
        attached = Attached(path.name or str(path), path=str(path))
        self.resume(attached)
        return attached

    def resume(self, attached: Attached) -> None:
        """Begin to read the file of one that an earlier run of the program did not read to its end."""
        self._waiting.append((Path(attached.path), attached))
        self._next()

    def drop(self, attached: Attached) -> None:
        """Nobody wants this one any more."""
        self._waiting = deque(each for each in self._waiting if each[1] is not attached)
        for run in [run for run, each in self._running.items() if each is attached]:
            del self._running[run]
            run.drop()
            run.deleteLater()
        self._next()

    def stop(self) -> None:
        """Before the program ends."""
        self._waiting.clear()
        for run in list(self._running):
            run.drop()
        self._running.clear()

    def _next(self) -> None:
        while self._waiting and len(self._running) < AT_ONCE:
            path, attached = self._waiting.popleft()
            run = LineCommand(
                self._command, ["read", str(path)], _decode, tr("Reading {name}", name=attached.name), self
            )
            self._running[run] = attached
            run.heard(partial(self._take, attached), partial(self._on_ended, run, attached))
            QTimer.singleShot(_PATIENCE_MS, run, run.stop)

    def _take(self, attached: Attached, found: ReadText) -> None:
        attached.document = document(attached.name, found.text, found.facts)

    def _on_ended(self, run: LineCommand, attached: Attached, end: End) -> None:
        self._running.pop(run, None)
        if attached.document is None:
            if end.killed:
                attached.failure = tr(
                    "{name} cannot be read: it takes too much memory or time, or the file is damaged.",
                    name=attached.name,
                )
            else:
                attached.failure = end.sentence or tr("Reading {name} gave no text.", name=attached.name)
        self.changed.emit()
        self._next()


def _decode(line: str) -> ReadText:
    return msgspec.json.decode(line, type=ReadText)
