"""One comparison at a time: `kvasir compare` as a child process, and what it left. No widgets."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from PySide6.QtCore import QObject, QTemporaryDir, Signal

from app.chat.welcome import BUNDLED
from app.command import End, LineCommand
from app.lab.compare import words
from engine.protocol.lab import Column, LabCompared, LabLine

_decode = msgspec.json.Decoder(LabLine).decode
FILES = {"html": "comparison.html", "json": "comparison.json"}
CHAT = "this chat"
"""The kind of text that prompts of a chat are."""


class Work(NamedTuple):
    """Work of the columns. ``prompts``: texts, or the path of a file of them; none: the built-in ones. ``text``:
    the path of a text to score, "" for none. ``rounds`` 0: as many as a verdict takes."""

    columns: Sequence[Column]
    prompts: Sequence[str] | str = ()
    text: str = ""
    tokens: int = 64
    rounds: int = 0


class Comparison(QObject):
    """``command`` is how `kvasir compare` is started; an empty one means that there is none."""

    changed = Signal()
    """It runs now, or does not any more."""
    progressed = Signal(object)
    """A LabProgress."""
    found = Signal(object)
    """The :class:`LabCompared`, when all was measured; before ``ended``."""
    ended = Signal(str)
    """Nothing runs any more; what went wrong as a sentence, "" for nothing."""

    def __init__(self, command: Sequence[str], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._command = list(command)
        self.running = False
        self.stopping = False
        self.prepare: Callable[[bool, Callable[[str], None]], None] = lambda _, go: go("")
        """Is called before a run with whether a model besides the bundled one is loaded for it, for which the window's
        engine had better give its memory; it calls back with "" when there is room, or with the sentence why not."""
        self.device: Callable[[], str] = lambda: "auto"
        """The device that the person chose."""
        self._run: LineCommand | None = None
        self._folder: QTemporaryDir | None = None
        self._result: LabCompared | None = None
        self._kept: QTemporaryDir | None = None
        self._turn = 0
        """Counts runs, so that what was prepared for one that was stopped starts none."""

    @property
    def possible(self) -> bool:
        return bool(self._command)

    def start(self, work: Work) -> None:
        """Nothing where one runs already."""
        if self.running or not self._command:
            return
        self.running, self.stopping, self._result = True, False, None
        self._turn += 1
        turn = self._turn
        self.changed.emit()

        def go(trouble: str) -> None:
            if turn == self._turn and self.running:
                if trouble:
                    self._end(trouble)
                else:
                    self._begin(work)

        self.prepare(any(column.model != BUNDLED for column in work.columns), go)

    def stop(self) -> None:
        if not self.running or self.stopping:
            return
        self.stopping = True
        if self._run is None:  # it waits for memory
            self._end(words.STOPPED)
        else:
            self._run.stop()
            self.changed.emit()

    @property
    def preparing(self) -> bool:
        """True while it still waits for memory."""
        return self.running and self._run is None

    @property
    def can_save(self) -> bool:
        """True if there is a result with its files."""
        return self._kept is not None

    def save(self, kind: Literal["html", "json"], path: Path) -> None:
        """Write the report or the figures of the last result. Raises OSError."""
        assert self._kept is not None
        shutil.copyfile(self._kept.filePath(FILES[kind]), path)

    def close_down(self) -> None:
        """Before the program ends."""
        self._command = []
        if self._run is not None:
            self._run.drop()
        for folder in (self._folder, self._kept):
            if folder is not None:
                folder.remove()

    def _begin(self, work: Work) -> None:
        self._folder = folder = QTemporaryDir()
        if not folder.isValid():
            self._end(f"There is no room for the report: {folder.errorString()}.")
            return
        arguments = ["--json-lines", "--tokens", str(work.tokens), "--pairs", str(work.rounds)]
        for kind, name in FILES.items():
            arguments += [f"--{kind}", folder.filePath(name)]
        for column in work.columns:
            arguments += ["--column", msgspec.json.encode(column).decode()]
        if work.text:
            arguments += ["--text", work.text]
        if self.device() != "auto":
            arguments += ["--device", self.device()]
        file = work.prompts if isinstance(work.prompts, str) else ""
        if work.prompts and not file:
            file = folder.filePath("prompts.jsonl")
            prompts = [{"text": each, "kind": CHAT} for each in work.prompts]
            try:
                Path(file).write_bytes(msgspec.json.Encoder().encode_lines(prompts))
            except OSError as error:
                self._end(words.not_saved(error))
                return
        if file:
            arguments += ["--prompts", file]
        run = LineCommand(self._command, arguments, _decode, "kvasir compare", self)
        self._run = run.heard(self._take, self._on_end)
        self.changed.emit()

    def _take(self, line: LabLine) -> None:
        if isinstance(line, LabCompared):
            self._result = line
        else:
            self.progressed.emit(line)

    def _on_end(self, end: End) -> None:
        trouble = "" if end.ok else end.sentence
        if self.stopping:
            trouble = words.STOPPED
        elif self._result is not None:
            self._kept = self._folder if end.ok else None
            self.found.emit(self._result)
        self._end(trouble or ("" if self._result is not None else words.NO_RESULT))

    def _end(self, sentence: str) -> None:
        self.running = self.stopping = False
        self._run = self._folder = None
        self.changed.emit()
        self.ended.emit(sentence)
