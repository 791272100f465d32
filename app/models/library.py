"""What the window knows of models, on this machine and on the hub, and of those on their way. No widgets.

Everything is asked of `kvasir models … --json`, a process for each question and each download: one that is killed, with
the window or by it, leaves its download where the next one goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence

from PySide6.QtCore import QObject, Signal

from app.command import End, LineCommand
from app.models.jobs import Jobs
from app.models.making import Maker
from engine.protocol import Download, FitReport, HubModel, HubRepository, StoredModel, decode_library_record

log = logging.getLogger(__name__)

AT_ONCE = 2
"""Downloads that run together; others wait their turn."""


class Library(QObject):
    """``command`` is how `kvasir models` is started, ``quantise`` how `kvasir quantise` is; an empty one means that
    there is none, and nothing happens."""

    stored_changed = Signal()
    found_changed = Signal()
    repository_changed = Signal(str)
    downloads_changed = Signal()
    failed = Signal(str)
    """Why something that was asked for was not done, as a sentence."""

    def __init__(self, command: Sequence[str], quantise: Sequence[str] = (), parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._command = list(command)
        self.maker = Maker(quantise, self)
        self.maker.making.done.connect(self.refresh)
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
        self.fits: dict[str, FitReport] = {}
        """Of such a repository's smallest model, where it could be told."""
        self.fetching: Jobs[Download] = Jobs(AT_ONCE, self._start, self._discard, self)
        self.fetching.changed.connect(self.downloads_changed)
        self.fetching.done.connect(self.refresh)
        self.fetching.discarded.connect(self._on_changed)
        self._adding: set[tuple[str, str]] = set()

    @property
    def downloads(self) -> dict[Hashable, Download]:
        """By their IDs."""
        return self.fetching.jobs

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
            if end.ok:
                self.fetching.merge({download.id: download for download in waiting})

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
        """Whether it fits, into :attr:`fits`; where that cannot be told nothing is said of it. One at a time: the last
        that was asked for."""
        if repository in self.fits:
            return
        if self._fitting is not None:
            self._fitting.abandon()
        reports: list[FitReport] = []

        def done(end: End) -> None:
            self._fitting = None
            if reports:
                self.fits[repository] = reports[0]
                self.repository_changed.emit(repository)

        self._fitting = self._run(["fit", "--json", "--", repository, variant], reports.append, done)

    def get(self, repository: str, variant: str) -> None:
        """Fetch a variant, when it is its turn; from now on it is in the list of downloads, whatever happens."""
        added: list[Download] = []

        def done(end: End) -> None:
            self._adding.discard((repository, variant))
            if not end.ok:
                self.failed.emit(end.sentence)
            for download in added:
                self.fetching.add(download.id, download)

        if self._command and (repository, variant) not in self._adding:
            self._adding.add((repository, variant))
            self._run(["get", "--later", "--json", "--", repository, variant], added.append, done)

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
        self.fetching.running.clear()
        self.maker.close_down()

    def _on_changed(self, end: End) -> None:
        if not end.ok:
            self.failed.emit(end.sentence)
        self.refresh()

    def _start(self, job: Download, take: Callable[[Download], object], done: Callable[[End], object]) -> LineCommand:
        return self._run(["resume", "--json", job.id], take, done)

    def _discard(self, job: Download, done: Callable[[End], object]) -> None:
        self._run(["downloads", "--json", "--cancel", job.id], lambda _: None, done)

    def _run(self, arguments: Sequence[str], take: Callable[..., object], done: Callable[[End], object]) -> LineCommand:
        run = LineCommand(self._command, arguments, decode_library_record, f"kvasir models {arguments[0]}", self)
        return run.heard(take, done)
