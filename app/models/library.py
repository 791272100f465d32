"""What the window knows of models, on this machine and on the hub, and of those on their way. No widgets.

Everything is asked of `kvasir models … --json`, a process for each question and each download: one that is killed, with
the window or by it, leaves its download where the next one goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec
from PySide6.QtCore import QObject, Signal

from app.command import End, LineCommand
from engine.protocol import Download, FitReport, HubModel, HubRepository, StoredModel, decode_library_record

log = logging.getLogger(__name__)

AT_ONCE = 2
"""Downloads that run together; others wait their turn."""


class Library(QObject):
    """``command`` is how `kvasir models` is started; an empty one means that there is none, and nothing happens."""

    stored_changed = Signal()
    found_changed = Signal()
    repository_changed = Signal(str)
    downloads_changed = Signal()
    arrived = Signal(object)
    """A Download that is done."""
    failed = Signal(str)
    """Why something that was asked for was not done, as a sentence."""

    def __init__(self, command: Sequence[str], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._command = list(command)
        self.stored: list[StoredModel] = []
        self.found: list[HubModel] = []
        self.trouble = ""
        """Why the last search found nothing it could."""
        self._searching: LineCommand | None = None
        self._listing: LineCommand | None = None
        self._asking: set[str] = set()
        self.repositories: dict[str, HubRepository | str] = {}
        """What was asked about: the answer, or why there is none."""
        self.fits: dict[str, FitReport] = {}
        """Of such a repository's smallest model, where it could be told."""
        self.downloads: dict[str, Download] = {}
        self._running: dict[str, LineCommand] = {}
        self._cancelled: set[str] = set()

    @property
    def searching(self) -> bool:
        return self._searching is not None

    def refresh(self) -> None:
        """Look again at what is on this machine, and at downloads that wait."""
        if not self._command or self._listing is not None:
            return
        models: list[StoredModel] = []

        def done(end: End) -> None:
            self._listing = None
            if end.ok:
                self.stored = models
                self.stored_changed.emit()
            else:
                self.failed.emit(end.sentence)

        self._listing = self._run(["list", "--json"], models.append, done)
        waiting: list[Download] = []

        def told(end: End) -> None:
            for download in waiting:
                if download.id not in self._running:
                    self.downloads[download.id] = download
            if end.ok and waiting:
                self.downloads_changed.emit()

        self._run(["downloads", "--json"], waiting.append, told)

    def search(self, text: str, format: str = "", sort: str = "downloads") -> None:
        """Look on the hub; a search that still runs is given up."""
        if not self._command:
            return
        if self._searching is not None:
            self._searching.abandon()
        found: list[HubModel] = []

        def done(end: End) -> None:
            self._searching = None
            self.found, self.trouble = found, "" if end.ok else end.sentence
            self.found_changed.emit()

        chosen = ["--format", format] if format else []
        self._searching = self._run(["search", "--json", "--sort", sort, *chosen, "--", text], found.append, done)
        self.found_changed.emit()

    def ask(self, repository: str) -> None:
        """What a repository holds, into :attr:`repositories`."""
        if not self._command or repository in self._asking:
            return
        self._asking.add(repository)
        answers: list[HubRepository] = []

        def done(end: End) -> None:
            self._asking.discard(repository)
            self.repositories[repository] = answers[0] if answers else end.sentence
            self.repository_changed.emit(repository)
            if answers and answers[0].variants:
                self._fit(repository, answers[0].variants[0].name)

        self._run(["show", "--json", "--", repository], answers.append, done)

    def _fit(self, repository: str, variant: str) -> None:
        """Whether it fits, into :attr:`fits`; where that cannot be told nothing is said of it."""
        reports: list[FitReport] = []

        def done(end: End) -> None:
            if reports:
                self.fits[repository] = reports[0]
                self.repository_changed.emit(repository)

        self._run(["fit", "--json", "--", repository, variant], reports.append, done)

    def get(self, repository: str, variant: str) -> None:
        """Fetch a variant, when it is its turn."""
        key = f"{repository} {variant}"
        wanted = (repository, variant)
        known = [id for id, each in self.downloads.items() if (each.repository, each.variant) == wanted]
        if known:
            self.resume(known[0])
            return
        self.downloads[key] = Download(id=key, repository=repository, variant=variant, state="waiting")
        self._next()

    def resume(self, id: str) -> None:
        """Go on with one that was paused or failed."""
        if id in self.downloads and id not in self._running:
            self.downloads[id] = msgspec.structs.replace(self.downloads[id], state="waiting", sentence="")
            self._next()

    def pause(self, id: str) -> None:
        """Stop one; what it brought is kept."""
        if id in self._running:
            self._running[id].stop()
        elif id in self.downloads:
            self.downloads[id] = msgspec.structs.replace(self.downloads[id], state="paused")
            self.downloads_changed.emit()

    def cancel(self, id: str) -> None:
        """Stop one and delete what it brought."""
        if id in self._running:
            self._cancelled.add(id)
            self._running[id].stop()
        elif self.downloads.pop(id, None) is not None:
            self.downloads_changed.emit()
            if " " not in id:
                self._run(["downloads", "--json", "--cancel", id], lambda _: None, self._on_changed)

    def remove(self, path: str) -> None:
        """Delete a model that was fetched."""
        self._run(["rm", "--", path], lambda _: None, self._on_changed)

    def close_down(self) -> None:
        """Before the program ends: nothing is started any more; downloads go on next time."""
        self._command = []
        for run in self.findChildren(LineCommand):
            run.drop()
        self._running.clear()

    def _on_changed(self, end: End) -> None:
        if not end.ok:
            self.failed.emit(end.sentence)
        self.refresh()

    def _next(self) -> None:
        """Start what waits, as far as its turn has come."""
        for id, download in list(self.downloads.items()):
            if len(self._running) < AT_ONCE and download.state == "waiting" and id not in self._running:
                self._start(id, download)
        self.downloads_changed.emit()

    def _start(self, id: str, download: Download) -> None:
        """``id`` names it until its first report; a download that is new has no name of its own before."""
        fresh = " " in id
        new = ["get", "--json", "--", download.repository, download.variant]
        arguments = new if fresh else ["resume", "--json", id]

        def told(report: Download) -> None:
            nonlocal id
            if report.id != id:
                self._running[report.id] = self._running.pop(id)
                # In its place in the order, under its own name.
                self.downloads = {(report.id if key == id else key): each for key, each in self.downloads.items()}
                if id in self._cancelled:
                    self._cancelled.add(report.id)
                id = report.id
            self.downloads[id] = report
            self.downloads_changed.emit()

        def done(end: End) -> None:
            self._running.pop(id, None)
            last = self.downloads[id]
            if last.state == "done":
                del self.downloads[id]
                self.arrived.emit(last)
                self.refresh()
            elif id in self._cancelled:
                self._cancelled.discard(id)
                self.cancel(id)
            elif last.state not in ("paused", "failed"):
                state = "failed" if end.sentence else "paused"
                self.downloads[id] = msgspec.structs.replace(last, state=state, sentence=end.sentence)
            self._next()

        self._running[id] = self._run(arguments, told, done)

    def _run(self, arguments: Sequence[str], take: Callable[..., object], done: Callable[[End], None]) -> LineCommand:
        run = LineCommand(self._command, arguments, decode_library_record, f"kvasir models {arguments[0]}", self)
        run.reported.connect(take)
        run.ended.connect(done)
        run.ended.connect(run.deleteLater)
        return run
