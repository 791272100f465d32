"""Commands that take long and go on where they ended: downloads, and models that are being made. No widgets."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from PySide6.QtCore import QObject, Signal

from app.command import End, LineCommand
from app.link.calls import Caller
from engine.protocol import Download, Error, MakeProgress
from engine.protocol.base import Part
from engine.protocol.calls import Operation

Job = TypeVar("Job", bound=Download | MakeProgress)


class Jobs(QObject, Generic[Job]):
    """``command`` starts what goes on with a job; an empty one means that there is none. At most ``at_once`` run, and
    others wait their turn."""

    changed = Signal()
    done = Signal(object)
    """The job that is; it is in the list no more."""
    discarded = Signal()
    """A job was deleted, or could not be."""
    failed = Signal(str)
    """Reason something that was asked for was not done, as a sentence."""

    def __init__(self, engine: Caller, command: Sequence[str], at_once: int, parent: QObject | None) -> None:
        super().__init__(parent)
        self._engine, self._command, self._at_once = engine, list(command), at_once
        self.jobs: dict[Hashable, Job] = {}
        self.running: dict[Hashable, LineCommand] = {}
        self._paused: set[Hashable] = set()
        self._cancelled: set[Hashable] = set()

    def add(self, key: Hashable, job: Job) -> None:
        """Put one into the list; it starts when it is its turn."""
        if key not in self.running:
            self.jobs[key] = _replace(job, "waiting")
        self.next()

    def merge(self, listed: Mapping[Hashable, Job]) -> None:
        """Merge in the unfinished jobs that the command lists; the window knows more of those that run or wait here."""
        kept = {key: each for key, each in self.jobs.items() if key in self.running or each.state == "waiting"}
        self.jobs = {**{key: each for key, each in listed.items() if key not in kept}, **kept}
        self.changed.emit()

    def stopping(self, key: Hashable) -> bool:
        """True if it was told to stop and has not yet."""
        return key in self._paused or key in self._cancelled

    def resume(self, key: Hashable) -> None:
        """Go on with one that was paused or failed."""
        if key in self.jobs:
            self.add(key, self.jobs[key])

    def pause(self, key: Hashable) -> None:
        """Stop one; what it has is kept."""
        if key in self.running:
            self._paused.add(key)
            self.running[key].stop()
        elif key in self.jobs:
            self.jobs[key] = _replace(self.jobs[key], "paused")
        self.changed.emit()

    def cancel(self, key: Hashable) -> None:
        """Stop one and delete what it has."""
        if key in self.running:
            self._cancelled.add(key)
            self.running[key].stop()
        elif key in self.jobs:
            self._discard(self.jobs.pop(key))
        self.changed.emit()

    def next(self) -> None:
        """Start what waits, as far as its turn has come."""
        for key, job in list(self.jobs.items()):
            if len(self.running) < self._at_once and job.state == "waiting" and key not in self.running:
                self._start(key)
        self.changed.emit()

    def close_down(self) -> None:
        """Before the program ends: nothing is started any more; what runs goes on next time."""
        self._command = []
        self.running.clear()

    def _begin(self, job: Job, take: Callable[[Job], object], done: Callable[[End], object]) -> LineCommand:
        """Run what goes on with a job: ``take`` gets what each of its lines says, ``done`` its end."""
        raise NotImplementedError

    def _deletion(self, job: Job) -> tuple[Operation[Any, Any, Any], Part] | None:
        """The operation that deletes what a job has, and its request; None where there is nothing."""
        raise NotImplementedError

    def _discard(self, job: Job) -> None:
        def failed(error: Error) -> None:
            self.failed.emit(error.message)
            self.discarded.emit()

        if deletion := self._deletion(job):
            self._engine.call(*deletion, lambda _: self.discarded.emit(), failed)
        else:
            self.discarded.emit()

    def _start(self, key: Hashable) -> None:
        def told(job: Job) -> None:
            self.jobs[key] = job
            self.changed.emit()

        def ended(end: End) -> None:
            self.running.pop(key, None)
            paused, cancelled = key in self._paused, key in self._cancelled
            self._paused.discard(key)
            self._cancelled.discard(key)
            last = self.jobs[key]
            if last.state == "done":
                del self.jobs[key]
                self.done.emit(last)
            elif cancelled:
                self.cancel(key)
            elif last.state not in ("paused", "failed"):  # it was ended before it could say so itself
                failed = bool(end.sentence) and not paused
                self.jobs[key] = _replace(last, "failed" if failed else "paused", end.sentence if failed else "")
            self.next()

        self.running[key] = self._begin(self.jobs[key], told, ended)


def _replace(job: Job, state: str, sentence: str = "") -> Job:
    return msgspec.structs.replace(job, state=state, sentence=sentence)
