"""One comparison at a time, and what it left. No widgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from PySide6.QtCore import QObject, Signal

from app.lab.compare import words
from app.link.calls import Caller, PendingCall
from engine.protocol import Error
from engine.protocol.lab import Column, CompareColumns, LabComparison, LabProgress
from engine.protocol.operations import COMPARE_COLUMNS

FILES = {"html": "comparison.html", "json": "comparison.json"}


class ComparisonWork(NamedTuple):
    """Work of the columns. ``prompts``: texts, or the path of a file of them; none: the built-in ones. ``text``:
    the path of a text to score, "" for none. ``rounds`` 0: as many as a verdict takes."""

    columns: Sequence[Column]
    prompts: Sequence[str] | str = ()
    text: str = ""
    tokens: int = 64
    rounds: int = 0


class ComparisonRun(QObject):
    """``caller`` performs it; None: nothing can be compared."""

    changed = Signal()
    """It runs now, or does not any more."""
    progressed = Signal(object)
    """A LabProgress."""
    found = Signal(object)
    """The :class:`LabCompared`, when all was measured; before ``ended``."""
    ended = Signal(str)
    """Nothing runs any more; what went wrong as a sentence, "" for nothing."""

    def __init__(self, caller: Caller | None, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._caller = caller
        self.stopping = False
        self.device: Callable[[], str] = lambda: "auto"
        """The device that the person chose."""
        self._run: PendingCall[LabProgress, LabComparison] | None = None
        self._kept: LabComparison | None = None

    @property
    def possible(self) -> bool:
        return self._caller is not None

    @property
    def running(self) -> bool:
        return self._run is not None

    def start(self, work: ComparisonWork) -> None:
        """Nothing where one runs already."""
        if self._run is not None or self._caller is None:
            return
        file = work.prompts if isinstance(work.prompts, str) else ""
        request = CompareColumns(
            columns=list(work.columns),
            prompts=[] if file else list(work.prompts),
            prompts_file=file,
            text_file=work.text,
            tokens=work.tokens,
            pairs=work.rounds,
            device=self.device(),
        )
        self.stopping = False
        self._run = self._caller.call(COMPARE_COLUMNS, request, self._on_found, self._on_error, self.progressed.emit)
        self.changed.emit()

    def stop(self) -> None:
        if self._run is not None and not self.stopping:
            self.stopping = True
            self._run.stop()
            self.changed.emit()

    @property
    def can_save(self) -> bool:
        """True if there is a result with its files."""
        return self._kept is not None

    def save(self, kind: Literal["html", "json"], path: Path) -> None:
        """Write the report or the figures of the last result. Raises OSError."""
        assert self._kept is not None
        if kind == "html":
            path.write_text(self._kept.report, encoding="utf-8")
        else:
            path.write_bytes(msgspec.json.format(msgspec.json.encode(self._kept.found), indent=1))

    def close_down(self) -> None:
        """Before the program ends."""
        self._caller = None
        if self._run is not None:
            self._run.cancel()

    def _on_found(self, made: LabComparison) -> None:
        self._kept = made
        self.found.emit(made.found)
        self._end("")

    def _on_error(self, error: Error) -> None:
        self._end(words.STOPPED if self.stopping else error.message)

    def _end(self, sentence: str) -> None:
        self.stopping, self._run = False, None
        self.changed.emit()
        self.ended.emit(sentence)
