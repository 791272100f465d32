"""State of models as the window knows it: on this machine, on the hub and on their way. No widgets.

Nearly everything is asked of `kvasir models … --json`, a process for each question and each download: one that is
killed, with the window or by it, leaves its download where the next one goes on. Which models suit this machine is
asked of the engine, which knows it already.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence

from PySide6.QtCore import QObject, Signal

from app import paths
from app.command import End, LineCommand
from app.files import decode_file
from app.models.getting import names
from app.models.jobs import Jobs
from app.models.making import Maker
from app.words import size
from engine.protocol import (
    CuratedList,
    Download,
    DraftOffer,
    FitReport,
    HubModel,
    HubRepository,
    Leftover,
    MakeProgress,
    ModelDetails,
    ModelFolder,
    Recommendation,
    Recommended,
    SizeFit,
    StoredModel,
    StoreMove,
    Watched,
    decode_library_record,
)

log = logging.getLogger(__name__)

MOST_LISTED = 4 << 20
"""Bytes of the list of recommended models."""
AT_ONCE = 2
"""Downloads that run together; others wait their turn."""


class Library(QObject):
    """``command`` is how `kvasir models` is started, ``quantise`` how `kvasir quantise` is; an empty one means that
    there is none, and nothing happens."""

    stored_changed = Signal()
    found_changed = Signal()
    repository_changed = Signal(str)
    downloads_changed = Signal()
    recommended_changed = Signal()
    """:attr:`recommended` or :attr:`stored_fits` says something else."""
    arrived = Signal(str, str)
    """Name and path of a model that came because the person asked for it: downloaded, made or imported."""
    drafts_changed = Signal(str)
    """The path of the model for which it is known now what drafts."""
    disk_changed = Signal()
    described = Signal(str)
    """The path of a model whose :attr:`details` are there."""
    store_moved = Signal(str, str)
    """Kvasir's models lay in the first folder and lie in the second one now."""
    working = Signal(str)
    """Work under way that takes a while, as a sentence; "" once it is over."""
    failed = Signal(str)
    """Reason something that was asked for was not done, as a sentence."""

    def __init__(self, command: Sequence[str], quantise: Sequence[str] = (), parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._command = list(command)
        self.maker = Maker(quantise, self)
        self.maker.making.done.connect(self._on_made)
        self.stored: list[StoredModel] = []
        self.listed = False
        """True if the models on this machine are known."""
        self.stored_fits: dict[str, SizeFit] = {}
        """By path, whether these run here, where that was told."""
        self._arriving: set[str] = set()
        """The paths of models that came and are not listed yet."""
        self._helpers: set[tuple[str, str]] = set()
        """Repository and variant of downloads that are to draft for another model."""
        self.folders: list[ModelFolder] = []
        self.watched: list[str] = []
        """Folders in which models come and go."""
        self.leftovers: list[Leftover] = []
        """Leftovers that may be deleted besides models and downloads; see :meth:`look_at_disk`."""
        self.details: dict[str, ModelDetails | str] = {}
        """By path: the last that was asked for, or why there is nothing to be said."""
        self.found: list[HubModel] = []
        self.trouble = ""
        """Reason the last search found nothing it could."""
        self._searching: LineCommand | None = None
        self._fitting: LineCommand | None = None
        self._listing: LineCommand | None = None
        self._left_out = ""
        """Parts that the last list said it could not offer, which is told once."""
        self._again = False
        """True if another listing follows the one that runs."""
        self._asking: set[str] = set()
        self.repositories: dict[str, HubRepository | str] = {}
        """Repositories that were asked about: the answer, or the reason there is none."""
        self.fits: dict[str, dict[str, FitReport]] = {}
        """Fits of such a repository's variants by their names, if they could be told."""
        self.fitting = ""
        """The repository whose fit is being planned."""
        self.credit = 0
        """Bytes that become free when the model that is loaded is dropped."""
        self.recommended: list[Recommendation] = _unjudged()
        """The recommended models; best first once they are judged."""
        self.judged = False
        """True if the engine has judged them for this machine."""
        self.judge: Callable[[], object] = lambda: None
        """Asks the engine which models suit this machine, which :meth:`show_judged` is told."""
        self.drafts: dict[str, list[DraftOffer] | str] = {}
        """Drafts for the models, by path, or the reason they cannot be told."""
        self._offering: dict[str, LineCommand] = {}
        self.limit: Callable[[], int] = int
        """MB a second that each download may take; 0: no limit."""
        self.fetching: Jobs[Download] = Jobs(AT_ONCE, self._start, self._discard, self)
        self.fetching.changed.connect(self.downloads_changed)
        self.fetching.done.connect(self._on_downloaded)
        self.fetching.discarded.connect(self._on_changed)
        self._adding: set[tuple[str, str]] = set()

    @property
    def downloads(self) -> dict[Hashable, Download]:
        """By their IDs."""
        return self.fetching.jobs

    @property
    def coming(self) -> list[Download]:
        """All that is on its way; what was asked for just now has no ID yet."""
        asked = [Download(id="", repository=of, variant=variant, state="waiting") for of, variant in self._adding]
        return [*self.fetching.jobs.values(), *asked]

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
        records: list[object] = []

        def done(end: End) -> None:
            listing, self._listing = self._listing, None
            if end.ok:
                left_out = listing.warning if listing is not None else ""
                if left_out not in ("", self._left_out):
                    self.failed.emit(left_out)
                self._left_out = left_out
                models = [each for each in records if isinstance(each, StoredModel)]
                if {each.path for each in models} != {each.path for each in self.stored}:
                    self._forget_drafts()  # others may draft now
                self.stored = models
                self.folders = [each for each in records if isinstance(each, ModelFolder)]
                self.watched = [path for each in records if isinstance(each, Watched) for path in each.paths]
                self.listed = True
                self.stored_changed.emit()
                for model in models:
                    if model.path in self._arriving:
                        self._arriving.discard(model.path)
                        self.arrived.emit(model.name.removeprefix("made/"), model.path)
            else:
                self.failed.emit(end.sentence)
            if self._again:
                self._again = False
                self.refresh()

        self._listing = self._run(["list", "--watched", "--json"], records.append, done)
        waiting: list[Download] = []

        def told(end: End) -> None:
            if end.ok:
                self.fetching.merge({download.id: download for download in waiting})

        self._run(["downloads", "--json"], waiting.append, told)

    def show_judged(self, judged: Recommended) -> None:
        """Take in the engine's verdicts on the recommended models and on those here."""
        self.recommended, self.stored_fits, self.judged = judged.models, judged.stored, True
        self.recommended_changed.emit()

    @property
    def bundled_alone(self) -> bool:
        """True if no model is here but those that came with Kvasir, as far as is known."""
        return all(model.bundled or model.missing for model in self.stored)

    def offer_drafts(self, path: str) -> None:
        """Look up the drafts for the model at ``path``, into :attr:`drafts`."""
        if not self._command or path in self._offering:
            return
        found: list[DraftOffer] = []

        def done(end: End) -> None:
            del self._offering[path]
            self.drafts[path] = found if end.ok else end.sentence
            self.drafts_changed.emit(path)

        self._offering[path] = self._run(["drafts", "--json", "--", path], found.append, done)

    def _forget_drafts(self) -> None:
        self.drafts.clear()
        for run in self._offering.values():
            run.abandon()
        self._offering.clear()

    def search(self, text: str, format: str = "", sort: str = "downloads", filters: Sequence[str] = ()) -> None:
        """Look on the hub; a search that still runs is given up. ``filters``: options of `kvasir models search`."""
        if not self._command:
            return
        if self._searching is not None:
            self._searching.abandon()
        found: list[HubModel] = []

        def done(end: End) -> None:
            self._searching = None
            self.found, self.trouble = found, "" if end.ok else end.sentence
            self.found_changed.emit()

        chosen = [*(["--format", format] if format else []), *filters]
        self._searching = self._run(["search", "--json", "--sort", sort, *chosen, "--", text], found.append, done)
        self.found_changed.emit()

    def end_search(self) -> None:
        """Give up a search that still runs, and forget what the last one found or failed at."""
        if self._searching is not None:
            self._searching.abandon()
            self._searching = None
        self.found, self.trouble = [], ""
        self.found_changed.emit()

    def ask(self, repository: str) -> None:
        """Look up the content of a repository, into :attr:`repositories`."""
        if not self._command or repository in self._asking:
            return
        self._asking.add(repository)
        answers: list[HubRepository] = []

        def done(end: End) -> None:
            self._asking.discard(repository)
            self.repositories[repository] = answers[0] if answers else end.sentence
            self.repository_changed.emit(repository)
            self._fit(repository)

        self._run(["show", "--json", "--", repository], answers.append, done)

    def set_loaded(self, credit: int, repository: str = "") -> None:
        """Another model is loaded, which holds ``credit`` bytes: what was planned is out of date. The fit of
        ``repository`` is planned anew."""
        if credit == self.credit:
            return
        self.credit = credit
        self.fits.clear()
        if self._fitting is not None:
            self._fitting.abandon()
            self._fitting, self.fitting = None, ""
        self._fit(repository)

    def _fit(self, repository: str) -> None:
        """Check if its variants fit, into :attr:`fits`; nothing is said of it if that cannot be told. One at a time:
        the last that was asked for."""
        answer = self.repositories.get(repository)
        variants = answer.variants if isinstance(answer, HubRepository) else []
        if not self._command or not variants or repository in self.fits:
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

    def get(self, repository: str, variant: str, helper: bool = False) -> None:
        """Download a variant, when it is its turn; from now on it is in the list of downloads, whatever happens.
        ``helper``: it is to draft for another model, so its arrival is not told."""
        added: list[Download] = []

        def done(end: End) -> None:
            self._adding.discard((repository, variant))
            if not end.ok:
                self.failed.emit(end.sentence)
            for download in added:
                self.fetching.add(download.id, download)
            self.downloads_changed.emit()

        (self._helpers.add if helper else self._helpers.discard)((repository, variant))
        if self._command and (repository, variant) not in self._adding:
            self._adding.add((repository, variant))
            self.downloads_changed.emit()
            self._run(["get", "--later", "--json", "--", repository, variant], added.append, done)

    def remove(self, path: str) -> None:
        """Delete a model that was fetched or copied; forget one that was imported where it lies."""
        self._run(["rm", "--", path], lambda _: None, self._on_changed)

    def bring(self, path: str) -> None:
        """Import a model from where it lies."""
        if self._command:
            self.working.emit(f"Looking into {path}…")
            self._run(["import", "--json", "--", path], self._on_imported, self._on_worked)

    def describe(self, path: str) -> None:
        """Read a model's headers, into :attr:`details`."""
        if not self._command:
            return
        answers: list[ModelDetails] = []

        def done(end: End) -> None:
            self.details = {path: answers[0] if answers else end.sentence}
            self.described.emit(path)

        self._run(["details", "--json", "--", path], answers.append, done)

    def tokenizer(self, path: str, take: Callable[..., object], done: Callable[[End], None]) -> LineCommand:
        """A model's tokenizer, which answers each text that is said to it (as JSON) until it is abandoned."""
        return self._run(["tokens", "--follow", "--json", "--", path], take, done, talking=True)

    def look_at_disk(self) -> None:
        """Look up what takes disk space besides models and downloads, into :attr:`leftovers`."""
        self._look(["disk", "--json"])

    def delete_leftover(self, path: str) -> None:
        self._look(["disk", "--json", "--delete", path])

    def _look(self, command: Sequence[str]) -> None:
        if not self._command:
            return
        records: list[object] = []

        def done(end: End) -> None:
            if end.ok:
                self.leftovers = [each for each in records if isinstance(each, Leftover)]
                self.disk_changed.emit()
            else:
                self.failed.emit(end.sentence)

        self._run(command, records.append, done)

    def change_folders(self, how: str, path: str) -> None:
        """``how``: "add", "remove", "downloads" or "move-to", as `kvasir models folders` has them."""

        store = next((each.path for each in self.folders if each.store), "")

        def done(end: End) -> None:
            if how == "move-to" and store and end.ok:
                self.store_moved.emit(store, path)
            self._on_worked(end)

        def take(record: object) -> None:
            if isinstance(record, StoreMove):
                self.working.emit(f"Moving the models to {path}: {size(record.done)} of {size(record.total)}")

        if self._command:
            self._run(["folders", f"--{how}", path, "--json"], take, done)

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

    def _on_downloaded(self, job: Download) -> None:
        if not any(job.repository == each and names(variant, job.variant) for each, variant in self._helpers):
            self._arriving.add(job.path)
        self.refresh()

    def _on_made(self, job: MakeProgress) -> None:
        self._arriving.add(job.path)
        self.refresh()

    def _on_imported(self, record: object) -> None:
        if isinstance(record, StoredModel):
            self._arriving.add(record.path)

    def _on_worked(self, end: End) -> None:
        self.working.emit("")
        self._on_changed(end)

    def _on_changed(self, end: End) -> None:
        if not end.ok:
            self.failed.emit(end.sentence)
        self.refresh()

    def _start(self, job: Download, take: Callable[[Download], object], done: Callable[[End], object]) -> LineCommand:
        limit = ["--limit", str(self.limit())] if self.limit() else []
        return self._run(["resume", "--json", *limit, job.id], take, done)

    def _discard(self, job: Download, done: Callable[[End], object]) -> None:
        self._run(["downloads", "--json", "--cancel", job.id], lambda _: None, done)

    def _run(
        self,
        arguments: Sequence[str],
        take: Callable[..., object],
        done: Callable[[End], object],
        talking: bool = False,
    ) -> LineCommand:
        name = f"kvasir models {arguments[0]}"
        return LineCommand(self._command, arguments, decode_library_record, name, self, talking).heard(take, done)


def _unjudged() -> list[Recommendation]:
    """The list of recommended models as it is installed; none where it is missing or broken."""
    file = paths.assets_dir() / "models.json"
    listed = decode_file(file, CuratedList, MOST_LISTED)
    if listed is None:
        log.error("the list of recommended models cannot be read: %s", file)
        return []
    return [Recommendation(model=model, verdict="") for model in listed.models]
