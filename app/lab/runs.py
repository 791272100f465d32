"""State of the Lab as the window knows it: experiments, results that are kept, and the run under way. No widgets."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from PySide6.QtCore import QObject, Signal

from app.lab import words
from app.lab.kept import kept_index
from app.link.calls import Caller, PendingCall
from engine.protocol import Error, LoadOptions
from engine.protocol.lab import (
    SECONDS,
    LabEvent,
    LabIndex,
    LabOutcome,
    LabPage,
    LabProgress,
    LabResult,
    LabRoofline,
    ListExperiments,
    Picture,
    RunExperiment,
)
from engine.protocol.operations import LIST_EXPERIMENTS, RUN_EXPERIMENT

log = logging.getLogger(__name__)


class Subject(NamedTuple):
    """The model that an experiment is shown with. ``path``: "" for the bundled one, a name for one that Kvasir brings.

    ``draft``: "" is none, None what the model brings.
    """

    name: str = ""
    path: str = ""
    draft: str | None = None
    options: LoadOptions = LoadOptions()
    """Options it is loaded with."""
    chosen: Mapping[str, int] = {}
    """Settings of the experiment."""


class LabRuns(QObject):
    """``caller`` performs the Lab's operations; None: there is no Lab. One experiment runs at a time, others wait.
    ``kept``: a file with the index as it was last, which is shown until the engine has answered. ``pairs`` and
    ``seconds``: as of :class:`RunExperiment`."""

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
        caller: Caller | None,
        parent: QObject | None = None,
        kept: Path | None = None,
        pairs: int = 0,
        seconds: float = SECONDS,
    ) -> None:
        super().__init__(parent)
        self._caller, self._kept = caller, kept
        self._effort: dict[str, Any] = {"pairs": pairs, "seconds": seconds}
        self.index = kept_index(kept) if kept is not None else None
        self._answered = False
        """True if the index is this version's and this machine's own."""
        self.trouble = "" if caller is not None else words.NO_LAB
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
        self.subject = Subject()
        """Subject of the run."""
        self.progress: LabProgress | None = None
        self.sides: list[str] = []
        self.pictures: dict[int, Picture] = {}
        """By the place in ``sides``, of what runs."""
        self.device: Callable[[], str] = lambda: "auto"
        """The device that the person chose."""
        self._waiting: deque[tuple[str, Subject]] = deque()
        self._asking: PendingCall[LabResult, LabIndex] | None = None
        self._run: PendingCall[LabEvent, LabOutcome] | None = None

    @property
    def pages(self) -> dict[str, LabPage]:
        """By name, in their order."""
        return {page.name: page for page in self.index.pages} if self.index is not None else {}

    def refresh(self) -> None:
        """Ask for the experiments and the results that are kept, where that was not answered yet."""
        if self._caller is None or self._answered or self._asking is not None:
            return
        self.trouble = ""
        self._asking = self._caller.call(
            LIST_EXPERIMENTS, ListExperiments(device=self.device()), self._on_index, self._on_no_index, self._take
        )
        self.index_changed.emit()

    def start(self, runs: Iterable[tuple[str, Subject]]) -> None:
        """Run these one after the other; nothing where some run already."""
        if self.running or self._caller is None:
            return
        self._waiting.extend(runs)
        self._next()

    def cancel(self) -> None:
        """Stop what runs, and start nothing that waits."""
        if self._run is None or self.stopping:
            return
        self._waiting.clear()
        self.stopping = True
        self._run.stop()
        self.changed.emit()

    def close_down(self) -> None:
        """Before the program ends."""
        self._caller = None
        self._waiting.clear()
        for call in (self._asking, self._run):
            if call is not None:
                call.cancel()
        self._asking = self._run = None

    def _on_index(self, index: LabIndex) -> None:
        self._asking, self._answered = None, True
        if index != self.index:
            self.index = index
            self._keep_index(index)
            self.index_changed.emit()

    def _on_no_index(self, error: Error) -> None:
        self._asking = None
        if self.index is None:
            self.trouble = error.message
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
        self.progress, self.pictures, self._run = None, {}, None
        self.stopping = False
        if not self._waiting or self._caller is None:
            self.running = ""
            self.changed.emit()
            self.done.emit()
            return
        self.running, self.subject = self._waiting.popleft()
        self.notes.pop(self.running, None)
        self.sides = self.pages[self.running].sides if self.running in self.pages else []
        self._run = self._caller.call(RUN_EXPERIMENT, self._request(), self._on_outcome, self._on_error, self._on_event)
        self.changed.emit()

    def _request(self) -> RunExperiment:
        subject, options = self.subject, self.subject.options
        if options.device == "auto":
            options = msgspec.structs.replace(options, device=self.device())
        return RunExperiment(
            name=self.running,
            model=subject.path,
            draft=subject.draft,
            options=options,
            chosen=dict(subject.chosen),
            **self._effort,
        )

    def _on_event(self, event: LabEvent) -> None:
        if isinstance(event, LabProgress):
            self.progress, self.sides = event, event.sides or self.sides
        else:
            self.pictures[event.side] = event.picture
        self.told.emit(event)

    def _on_outcome(self, outcome: LabOutcome) -> None:
        if outcome.warning:
            self.notes[self.running] = outcome.warning
        self._take(outcome.found)
        self._next()

    def _take(self, found: LabResult | LabRoofline) -> None:
        if isinstance(found, LabResult):
            self.tried.pop(found.name, None)
            (self.tried if found.chosen else self.results)[found.name] = found
            self.results_changed.emit(found.name)
        else:
            self.roofline = found
            self.roofline_changed.emit()

    def _on_error(self, error: Error) -> None:
        self.notes[self.running] = words.STOPPED if self.stopping else error.message
        self._next()
