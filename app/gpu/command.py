"""One run of ``kvasir gpu … --json``: its lines as signals, its end as a result. No widgets."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QObject, Signal

from app.command import End, LineCommand
from engine.protocol import PackProgress, PackResult, PackStatus, decode_pack_report


class PackCommand(QObject):
    """Run of `kvasir gpu` by :class:`LineCommand`; the command tells its result itself, in its last line."""

    reported = Signal(object)
    """A PackStatus or PackProgress."""
    ended = Signal(object)
    """The PackResult: the command's own, or what its end says about it."""

    def __init__(self, command: Sequence[str], arguments: Sequence[str], parent: QObject) -> None:
        super().__init__(parent)
        self._result: PackResult | None = None
        self._known = False
        self._run = LineCommand(command, [*arguments, "--json"], decode_pack_report, "The GPU pack's command", self)
        self._run.reported.connect(self._take)
        self._run.ended.connect(self._on_end)

    def stop(self) -> None:
        """Ask it to stop in a state that it can go on from; insist after a while."""
        self._run.stop()

    def drop(self) -> None:
        """The program ends: end it too and say nothing more."""
        self._run.drop()

    def abandon(self) -> None:
        """Nobody wants the answer: it ends in its own time, says nothing more, and is deleted then."""
        self._run.destroyed.connect(self.deleteLater)
        self._run.abandon()

    def _take(self, report: object) -> None:
        if isinstance(report, PackResult):
            self._result = report
            return
        self._known = self._known or isinstance(report, PackStatus)
        assert isinstance(report, PackStatus | PackProgress)
        self.reported.emit(report)

    def _on_end(self, end: End) -> None:
        if self._result is None and end.ok and not self._known:
            end = End(False, "The GPU pack's command stopped (exit code 0).")
        self.ended.emit(self._result or PackResult(ok=end.ok, sentence=end.sentence))
