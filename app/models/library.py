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
        self._fitting: LineCommand | None = None
        self._listing: LineCommand | None = None
        self._again = False
        """Whether to look again after the listing that runs."""
        self._asking: set[str] = set()
        self.repositories: dict[str, HubRepository | str] = {}
        """What was asked about: the answer, or why there is none."""
        self.fits: dict[str, dict[str, FitReport]] = {}
        """Of such a repository's variants by their names, where it could be told."""
        self.fitting = ""
        """The repository whose fit is being planned."""
        self.credit = 0
        """Bytes that become free when the model that is loaded is dropped."""
        self.downloads: dict[str, Download] = {}
        self._running: dict[str, LineCommand] = {}
        self._adding: set[tuple[str, str]] = set()
        self._paused: set[str] = set()
        self._cancelled: set[str] = set()

    @property
    def searching(self) -> bool:
        return self._searching is not None

    def refresh(self) -> None:
        """Look again at what is on this machine, and at downloads that wait."""
        if not self._command:
            return
        if self._listing is not None:  # what it sees may be older than what happened now
            self._again = True
            return
        models: list[StoredModel] = []

        def done(end: End) -> None:
            self._listing = None
            if end.ok:
                self.stored = models
                self.stored_changed.emit()
            else:
                self.failed.emit(end.sentence)
            if self._again:
                self._again = False
                self.refresh()

        self._listing = self._run(["list", "--json"], models.append, done)
        waiting: list[Download] = []

        def told(end: End) -> None:
            if not end.ok:
                return
            listed = {download.id: download for download in waiting}
            kept = {id: each for id, each in self.downloads.items() if id in self._running or each.state == "waiting"}
            self.downloads = {**{id: each for id, each in listed.items() if id not in kept}, **kept}
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
                self._fit(repository)

        self._run(["show", "--json", "--", repository], answers.append, done)

    def set_loaded(self, credit: int) -> None:
        """Another model is loaded, which holds ``credit`` bytes: what was planned is out of date."""
        if credit != self.credit:
            self.credit = credit
            self.fits.clear()

    def _fit(self, repository: str) -> None:
        """Whether its variants fit, into :attr:`fits`; where that cannot be told nothing is said of it. One at a time:
        the last that was asked for."""
        if repository in self.fits:
            return
        if self._fitting is not None:
            self._fitting.abandon()
        reports: list[FitReport] = []

        def done(end: End) -> None:
            self._fitting, self.fitting = None, ""
            if reports:
                self.fits[repository] = {report.variant: report for report in reports}
            self.repository_changed.emit(repository)

        self.fitting = repository
        credit = ["--credit", str(self.credit)] if self.credit else []
        self._fitting = self._run(["fit", "--json", *credit, "--", repository], reports.append, done)
        self.repository_changed.emit(repository)

    def get(self, repository: str, variant: str) -> None:
        """Fetch a variant, when it is its turn; from now on it is in the list of downloads, whatever happens."""
        added: list[Download] = []

        def done(end: End) -> None:
            self._adding.discard((repository, variant))
            for download in added:
                if download.id not in self._running:
                    self.downloads[download.id] = msgspec.structs.replace(download, state="waiting", sentence="")
            if not end.ok:
                self.failed.emit(end.sentence)
            self._next()

        if self._command and (repository, variant) not in self._adding:
            self._adding.add((repository, variant))
            self._run(["get", "--later", "--json", "--", repository, variant], added.append, done)

    def resume(self, id: str) -> None:
        """Go on with one that was paused or failed."""
        if id in self.downloads and id not in self._running:
            self.downloads[id] = msgspec.structs.replace(self.downloads[id], state="waiting", sentence="")
            self._next()

    def pause(self, id: str) -> None:
        """Stop one; what it brought is kept."""
        if id in self._running:
            self._paused.add(id)
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
            self._run(["downloads", "--json", "--cancel", id], lambda _: None, self._on_changed)

    def remove(self, path: str) -> None:
        """Delete a model that was fetched."""
        self._run(["rm", "--", path], lambda _: None, self._on_changed)

    def close_down(self) -> None:
        """Before the program ends: nothing is started any more; downloads go on next time."""
        self._command = []
        runs = self.findChildren(LineCommand)
        for run in runs:
            run.stop()  # all at once: each may take a while
        for run in runs:
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
                self._start(id)
        self.downloads_changed.emit()

    def _start(self, id: str) -> None:
        def told(report: Download) -> None:
            self.downloads[id] = report
            self.downloads_changed.emit()

        def done(end: End) -> None:
            self._running.pop(id, None)
            paused, cancelled = id in self._paused, id in self._cancelled
            self._paused.discard(id)
            self._cancelled.discard(id)
            last = self.downloads[id]
            if last.state == "done":
                del self.downloads[id]
                self.refresh()
            elif cancelled:
                self.cancel(id)
            elif last.state not in ("paused", "failed"):  # it was ended before it could say so itself
                failed = bool(end.sentence) and not paused
                sentence = end.sentence if failed else ""
                state = "failed" if failed else "paused"
                self.downloads[id] = msgspec.structs.replace(last, state=state, sentence=sentence)
            self._next()

        self._running[id] = self._run(["resume", "--json", id], told, done)

    def _run(self, arguments: Sequence[str], take: Callable[..., object], done: Callable[[End], None]) -> LineCommand:
        run = LineCommand(self._command, arguments, decode_library_record, f"kvasir models {arguments[0]}", self)
        run.reported.connect(take)
        run.ended.connect(done)
        run.ended.connect(run.deleteLater)
        return run
