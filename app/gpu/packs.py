"""State of GPU packs as the window knows it, and the one command at a time that looks after them. No widgets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Literal

from PySide6.QtCore import QObject, Signal

from app.command import End, LineCommand
from app.gpu.pace import DownloadPace
from app.language import tr
from engine.protocol import PackProgress, PackResult, PackStatus, decode_pack_report

log = logging.getLogger(__name__)

Action = Literal["", "install", "repair", "test", "remove", "remove_old"]
"""The commands that change something; "" for none."""
_ARGUMENTS: dict[Action, tuple[str, ...]] = {
    "install": ("install",),
    "repair": ("repair",),
    "test": ("check",),
    "remove": ("remove",),
    "remove_old": ("remove",),
}


class Packs(QObject):
    """``command`` is how `kvasir gpu` is started; an empty one means that there is none, and nothing ever happens."""

    changed = Signal()
    """Any of the properties."""
    ended = Signal(str, object)
    """(the Action, its PackResult); not for one that was paused."""
    checked = Signal()
    """:attr:`status` is fresh, or could not be read."""

    def __init__(self, command: Sequence[str], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._command = list(command)
        self._running: LineCommand | None = None
        self._result: PackResult | None = None
        """Result that what runs told in its last line."""
        self._known = False
        """True if it told the status."""
        self._stopped = False
        self._file = ""
        self.status: PackStatus | None = None
        self.trouble = ""
        """Reason the status could not be read."""
        self.action: Action = ""
        """The action that runs."""
        self.progress: PackProgress | None = None
        self.pace = DownloadPace()
        self.paused: Action = ""
        """Action that was stopped by the person and can go on."""
        self.failed: Action = ""
        self.failure = ""
        """Reason it failed, as a sentence."""

    def check(self) -> None:
        """Ask for the status; while something runs that comes at its end anyway."""
        if self._command and self._running is None:
            self._start(("status",), self._on_status_end)

    def install(self, file: str = "") -> None:
        """Download and install, or go on with that; with a file from what `kvasir gpu bundle` made."""
        self._file = file
        self._act("install", ("--from", file) if file else ())

    def repair(self) -> None:
        self._act("repair")

    def test(self) -> None:
        """Run the self-test of an installed pack; one that passes is used again."""
        self._act("test")

    def remove(self) -> None:
        """Remove all packs, those of earlier versions too."""
        self._act("remove")

    def remove_old(self) -> None:
        """Remove the packs of earlier versions alone."""
        if self.status is not None and self.status.others:
            self._act("remove_old", self.status.others)

    def again(self) -> None:
        """Repeat the action that was paused or failed."""
        action = self.paused or self.failed
        if action:
            self._act(action, ("--from", self._file) if action == "install" and self._file else ())

    def pause(self) -> None:
        """Stop what runs; what has been fetched stays."""
        if self._running is not None and self.action:
            self._stopped = True
            self._running.stop()

    def forget(self) -> None:
        """Nothing more is said of what was paused or failed."""
        self.paused = self.failed = ""
        self.failure = ""
        self.changed.emit()

    def close_down(self) -> None:
        """Before the program ends: nothing is started any more; what is half fetched goes on next time."""
        self._command = []
        for run in self.findChildren(LineCommand):
            run.drop()
        self._running = None

    def _act(self, action: Action, more: Sequence[str] = ()) -> None:
        if not self._command or self.action:
            return
        if self._running is not None:  # a status, which comes again afterwards
            self._running.abandon()
        self.action, self.paused, self.failed, self.failure = action, "", "", ""
        self.progress, self._stopped = None, False
        self.pace.clear()
        self._start([*_ARGUMENTS[action], *more], self._on_action_end)
        self.changed.emit()

    def _start(self, arguments: Sequence[str], done: Callable[[PackResult], object]) -> None:
        """``done`` gets the command's own result, or what its end says about it."""

        def ended(end: End) -> None:
            if end.ok and not self._known:
                end = End(False, tr("The GPU pack's command stopped (exit code 0)."))
            self._running = None
            done(self._result or PackResult(ok=end.ok, sentence=end.sentence))

        self._result, self._known = None, False
        name = tr("The GPU pack's command")
        run = LineCommand(self._command, [*arguments, "--json"], decode_pack_report, name, self)
        self._running = run.heard(self._on_report, ended)

    def _on_report(self, report: PackStatus | PackProgress | PackResult) -> None:
        if isinstance(report, PackResult):
            self._result = report
            return
        if isinstance(report, PackStatus):
            self.status, self._known = report, True
            return
        if self.progress is None or report.stage != self.progress.stage:
            self.pace.clear()
        if report.stage == "downloading":
            self.pace.add(report.done, time.monotonic())
        self.progress = report
        self.changed.emit()

    def _on_status_end(self, result: PackResult) -> None:
        self.trouble = "" if result.ok else result.sentence
        if self.trouble:
            log.warning("the state of GPU packs is not known: %s", self.trouble)
        self.changed.emit()
        self.checked.emit()

    def _on_action_end(self, result: PackResult) -> None:
        action, self.action, self.progress = self.action, "", None
        if result.ok:
            log.info("gpu %s: %s", action, result.sentence)
        elif self._stopped:
            self.paused = action
        else:
            log.warning("gpu %s: %s", action, result.sentence)
            self.failed, self.failure = action, result.sentence
        self.changed.emit()
        if result.ok or not self._stopped:
            self.ended.emit(action, result)
        self.check()
