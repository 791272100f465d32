"""Models on their way from the hub to this machine.

Each download is a process of its own, `kvasir models resume`: one that is killed, with the window or by it, leaves its
download where the next one goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from PySide6.QtCore import QObject

from app.command import End, LineCommand
from app.link.calls import Caller
from app.models.state.getting import names, place
from app.models.state.jobs import Jobs
from engine.protocol import Download, Error, decode_library_record, operations
from engine.protocol.base import Part
from engine.protocol.calls import Operation

AT_ONCE = 2
"""Downloads that run together; others wait their turn."""


class DownloadJobs(Jobs[Download]):
    """By their IDs. ``command`` is how `kvasir models` is started."""

    def __init__(self, engine: Caller, command: Sequence[str], parent: QObject) -> None:
        super().__init__(engine, command, AT_ONCE, parent)
        self._adding: set[tuple[str, str]] = set()
        self._helpers: set[tuple[str, str]] = set()
        """Repository and variant of downloads that are to draft for another model."""
        self.refused: dict[tuple[str, str], str] = {}
        """By repository and variant, as they were asked for: why that did not begin. It is shown where it was asked."""
        self.limit: Callable[[], int] = int
        """MB a second that each download may take; 0: no limit."""

    @property
    def coming(self) -> list[Download]:
        """All that is on its way; what was asked for just now has no ID yet."""
        asked = [Download(id="", repository=of, variant=variant, state="waiting") for of, variant in self._adding]
        return [*self.jobs.values(), *asked]

    def refresh(self) -> None:
        """Look again at downloads that wait."""
        waiting = operations.LIST_DOWNLOADS, operations.ListDownloads()
        self._engine.call(*waiting, lambda found: self.merge({download.id: download for download in found}))

    def get(self, repository: str, variant: str, helper: bool = False) -> None:
        """Download a variant, when it is its turn, or go on with one that was stopped; it is in the list of downloads
        from now on, or in :attr:`refused`. ``helper``: it is to draft for another model, so its arrival is not told."""

        def added(download: Download) -> None:
            self._adding.discard((repository, variant))
            self.add(download.id, download)

        def failed(error: Error) -> None:
            self._adding.discard((repository, variant))
            self.refused[repository, variant] = error.message
            self.changed.emit()

        self.refused.pop((repository, variant), None)
        (self._helpers.add if helper else self._helpers.discard)((repository, variant))
        stopped = place(repository, variant, (), self.jobs.values()).coming
        if stopped is not None and stopped.state == "failed":
            self.resume(stopped.id)
        elif (repository, variant) not in self._adding:
            self._adding.add((repository, variant))
            self.changed.emit()
            asked = operations.AddDownload(repository=repository, variant=variant)
            self._engine.call(operations.ADD_DOWNLOAD, asked, added, failed)

    def helps(self, job: Download) -> bool:
        """True if it is to draft for another model."""
        return any(job.repository == each and names(variant, job.variant) for each, variant in self._helpers)

    def _begin(self, job: Download, take: Callable[[Download], object], done: Callable[[End], object]) -> LineCommand:
        limit = ["--limit", str(self.limit())] if self.limit() else []
        name, arguments = "kvasir models resume", ["resume", "--json", *limit, job.id]
        return LineCommand(self._command, arguments, decode_library_record, name, self).heard(take, done)

    def _deletion(self, job: Download) -> tuple[Operation[Any, Any, Any], Part]:
        return operations.LIST_DOWNLOADS, operations.ListDownloads(cancel=job.id)
