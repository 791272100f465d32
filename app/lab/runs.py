"""State of the Lab as the window knows it: experiments, results that are kept, and the run under way. No widgets."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from PySide6.QtCore import QObject, Signal

from app.command import End, LineCommand
from app.files import decode_file
from app.lab import words
from engine.protocol import LoadOptions
from engine.protocol.lab import LabIndex, LabLine, LabPage, LabPicture, LabProgress, LabResult, LabRoofline, Picture

log = logging.getLogger(__name__)

_decode = msgspec.json.Decoder(LabLine).decode
MOST_BYTES = 4 << 20
"""Largest size of a list of experiments."""


class Subject(NamedTuple):
    """The model that an experiment is shown with. ``path``: "" for the bundled one, a name for one that Kvasir brings.

    ``draft``: "" is none, None what the model brings. ``own``: one of the person's, for which the engine gives its
    memory back meanwhile.
    """

    name: str = ""
    path: str = ""
    draft: str | None = None
    own: bool = False
    options: LoadOptions = LoadOptions()
    """Options it is loaded with."""
    chosen: Mapping[str, int] = {}
    """Settings of the experiment."""

    @property
    def arguments(self) -> list[str]:
        """Arguments of `kvasir lab`, but for the device."""
        told = ["--model", self.path] if self.path else []
        if self.draft is not None:
            told += ["--draft", self.draft or "none"]
        if self.options.quantise != "none":
            told += ["--quantise", self.options.quantise]
        if self.options.context is not None:
            told += ["--context", str(self.options.context)]
        if (memory := self.options.memory) is not None:
            told += ["--memory", f"{100 * memory:g}%" if memory <= 1 else f"{memory / 1e9:g}"]
        if self.options.dtype != "auto":
            told += ["--dtype", self.options.dtype]
        return [*told, *(each for key, value in self.chosen.items() for each in ("--set", f"{key}={value}"))]


class LabRuns(QObject):
    """``command`` is how `kvasir lab` is started; an empty one means that there is none. One experiment runs at a time,
    others wait. ``options`` go with every run. ``kept``: a file with the index as it was last, which is shown until the
    command has answered."""

    index_changed = Signal()
    results_changed = Signal(str)
    """The name of the experiment that has another result."""
    roofline_changed = Signal()
    told = Signal(object)
    """A LabProgress or a LabPicture of what runs."""
    changed = Signal()
    """Another run is under way or waits."""
    done = Signal()
    """Nothing runs or waits any more."""

    def __init__(
        self,
        command: Sequence[str],
        options: Sequence[str] = (),
        parent: QObject | None = None,
        kept: Path | None = None,
    ) -> None:
        super().__init__(parent)
        self._command, self.options, self._kept = list(command), list(options), kept
        self.index = decode_file(kept, LabIndex, MOST_BYTES) if kept is not None else None
        self._answered = False
        """True if the index is this version's and this machine's own."""
        self.trouble = "" if command else words.NO_LAB
        """Reason there is no index, as a sentence."""
        self.results: dict[str, LabResult] = {}
        """The last one of each experiment as it usually is."""
        self.tried: dict[str, LabResult] = {}
        """Results of this session with other settings that were not shown yet."""
        self.roofline: LabRoofline | None = None
        """The last one of this session."""
        self.notes: dict[str, str] = {}
        """Notes on how the last run of an experiment ended, if there is something to say."""
        self.running = ""
        self.stopping = False
        """True if what runs was told to stop."""
        self._found = False
        """True if what runs has told its result, which is kept."""
        self.subject = Subject()
        """Subject of the run."""
        self.progress: LabProgress | None = None
        self.sides: list[str] = []
        self.pictures: dict[int, Picture] = {}
        """By the place in ``sides``, of what runs."""
        self.prepare: Callable[[Subject, Callable[[str], None]], None] = lambda _, go: go("")
        """Make room for a model; calls back with "" once there is, or with the sentence why there is none."""
        self.device: Callable[[], str] = lambda: "auto"
        """The device that the person chose."""
        self._waiting: deque[tuple[str, Subject]] = deque()
        self._asking: LineCommand | None = None
        self._run: LineCommand | None = None
        self._turn = 0
        """Counts runs, so that what was prepared for one that was cancelled starts none."""

    @property
    def pages(self) -> dict[str, LabPage]:
        """By name, in their order."""
        return {page.name: page for page in self.index.pages} if self.index is not None else {}

    @property
    def preparing(self) -> bool:
        """True while the run still waits for memory."""
        return bool(self.running) and self._run is None

    def refresh(self) -> None:
        """Ask for the experiments and the results that are kept, where that was not answered yet."""
        if not self._command or self._answered or self._asking is not None:
            return
        self.trouble = ""
        self._asking = self._start(["--results", "--json"], self._take, self._on_results)
        self.index_changed.emit()

    def start(self, runs: Iterable[tuple[str, Subject]]) -> None:
        """Run these one after the other; nothing where some run already."""
        if self.running or not self._command:
            return
        self._waiting.extend(runs)
        self._next()

    def cancel(self) -> None:
        """Stop what runs, and start nothing that waits."""
        if not self.running or self.stopping:
            return
        self._waiting.clear()
        if self._run is not None:
            self.stopping = True
            self._run.stop()
            self.changed.emit()
        else:
            self.notes[self.running] = words.STOPPED
            self._next()

    def close_down(self) -> None:
        """Before the program ends."""
        self._command = []
        self._waiting.clear()
        for command in (self._asking, self._run):
            if command is not None:
                command.drop()
        self._asking = self._run = None

    def _on_results(self, end: End) -> None:
        """Ask for the experiments, which takes a model, after the kept results, which are shown at once."""
        if not end.ok:
            self._on_index(end)
            return
        self._asking = self._start(["--json", *self._device()], self._take, self._on_index)

    def _on_index(self, end: End) -> None:
        self._asking = None
        if self.index is None:
            self.trouble = end.sentence or words.NO_LAB
            self.index_changed.emit()

    def _keep_index(self, index: LabIndex) -> None:
        """Keep the index for the next start; one that cannot be kept is asked for again."""
        if self._kept is None:
            return
        try:
            self._kept.parent.mkdir(exist_ok=True)
            unfinished = self._kept.with_suffix(".new")
            unfinished.write_bytes(msgspec.json.encode(index))
            unfinished.replace(self._kept)
        except OSError as error:
            log.warning("the list of experiments could not be kept: %s", error)

    def _next(self) -> None:
        self._turn += 1
        self.progress, self.pictures, self._run = None, {}, None
        self.stopping = self._found = False
        if not self._waiting:
            self.running = ""
            self.changed.emit()
            self.done.emit()
            return
        self.running, self.subject = self._waiting.popleft()
        self.notes.pop(self.running, None)
        self.sides = self.pages[self.running].sides if self.running in self.pages else []
        self.changed.emit()
        turn = self._turn

        def go(trouble: str) -> None:
            if turn != self._turn:
                return
            if trouble:
                self._waiting.clear()
                self.notes[self.running] = trouble
                self._next()
            else:
                self._begin()

        self.prepare(self.subject, go)

    def _begin(self) -> None:
        subject = self.subject
        arguments = [self.running, "--json", *subject.arguments, *self._device(subject.options.device), *self.options]
        self._run = self._start(arguments, self._take, self._on_end)
        self.changed.emit()

    def _device(self, own: str = "auto") -> list[str]:
        """``own``: the one of the model that is run."""
        device = self.device() if own == "auto" else own
        return ["--device", device] if device != "auto" else []

    def _take(self, line: LabLine) -> None:
        if isinstance(line, LabIndex):
            self._answered = True
            if line != self.index:
                self.index = line
                self._keep_index(line)
                self.index_changed.emit()
        elif isinstance(line, LabResult):
            self.tried.pop(line.name, None)
            (self.tried if line.chosen else self.results)[line.name] = line
            self._found |= line.name == self.running
            self.results_changed.emit(line.name)
        elif isinstance(line, LabRoofline):
            self.roofline, self._found = line, True
            self.roofline_changed.emit()
        elif isinstance(line, LabProgress | LabPicture) and line.name == self.running:
            if isinstance(line, LabProgress):
                self.progress, self.sides = line, line.sides or self.sides
            else:
                self.pictures[line.side] = line.picture
            self.told.emit(line)

    def _on_end(self, end: End) -> None:
        name, run = self.running, self._run
        if self.stopping:
            if not self._found:
                self.notes[name] = words.STOPPED
        elif said := end.sentence or (run.warning if run is not None else ""):
            self.notes[name] = said
        self._next()

    def _start(
        self, arguments: Sequence[str], take: Callable[..., object], done: Callable[[End], object]
    ) -> LineCommand:
        return LineCommand(self._command, arguments, _decode, "The Lab", self).heard(take, done)
