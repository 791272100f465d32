"""State of models that are made smaller, and of those that were, as the window knows it. No widgets.

One is made by `kvasir quantise`, a process of its own, which takes all of the machine and may be killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from PySide6.QtCore import QObject

from app.command import End, LineCommand
from app.link.calls import Caller
from app.models.state.jobs import Jobs
from engine.protocol import MakeProgress, MakeReport, decode_library_record
from engine.protocol.base import Part
from engine.protocol.calls import Operation
from engine.protocol.operations import LIST_UNFINISHED, ListUnfinished


class Maker(Jobs[MakeProgress]):
    """``command`` is how `kvasir quantise` is started; an empty one means that there is none, and nothing is made.

    The key of a job is all that names it on the command line: the same command goes on where it ended.
    """

    def __init__(self, engine: Caller, command: Sequence[str], parent: QObject | None = None) -> None:
        super().__init__(engine, command, 1, parent)  # one takes all of the machine
        self.discarded.connect(self.refresh)

    def refresh(self) -> None:
        """Look again at what was stopped."""

        def told(unfinished: list[MakeProgress]) -> None:
            # A list knows of no failure, nor of what failed before its first note.
            failed = {key: each for key, each in self.jobs.items() if each.state == "failed"}
            self.merge({**{key_of(each): each for each in unfinished}, **failed})

        self._engine.call(LIST_UNFINISHED, ListUnfinished(), told)

    def make(self, model: str, to: str, text: str = "") -> None:
        """Make one, when it is its turn. ``text``: a file to calibrate with; "" for the bundled text."""
        job = MakeProgress(id="", model=model, to=to, state="waiting", options=["--text", text] if text else [])
        if self._command:
            self.add(key_of(job), self.jobs.get(key_of(job), job))

    def _begin(
        self, job: MakeProgress, take: Callable[[MakeProgress], object], done: Callable[[End], object]
    ) -> LineCommand:
        last = [job]

        def told(record: MakeProgress | MakeReport) -> None:
            if isinstance(record, MakeReport):  # the last word of one that is done
                record = msgspec.structs.replace(last[0], state="done", path=record.path)
            # What names it stays as it was asked for: what goes on with it is the same command.
            last[0] = msgspec.structs.replace(record, model=job.model, to=job.to, options=job.options)
            take(last[0])

        arguments = [job.model, "--to", job.to, *job.options, "--json"]
        run = LineCommand(self._command, arguments, decode_library_record, "kvasir quantise", self)
        return run.heard(told, done)

    def _deletion(self, job: MakeProgress) -> tuple[Operation[Any, Any, Any], Part] | None:
        return (LIST_UNFINISHED, ListUnfinished(discard=job.id)) if job.id else None


def key_of(job: MakeProgress) -> tuple[str, ...]:
    """Arguments that name it on the command line."""
    return (job.model, job.to, *job.options)
