"""State of models as the window knows it: on this machine, on the hub and on their way. No widgets.

All of it is asked of the engine, by its operations; a download is a process of its own, `kvasir models resume`: one
that is killed, with the window or by it, leaves its download where the next one goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import QObject, Signal

from app import paths
from app.command import End, LineCommand
from app.files import decode_file
from app.link.calls import Caller, PendingCall
from app.models.getting import names
from app.models.jobs import Jobs
from app.models.making import Maker
from app.words import size
from engine.protocol import (
    CuratedList,
    Download,
    DraftOffer,
    Error,
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
    TextTokens,
    decode_library_record,
    operations,
)
from engine.protocol.operations import Folders, ModelList

log = logging.getLogger(__name__)

MOST_LISTED = 4 << 20
"""Bytes of the list of recommended models."""
NOT_CONNECTED = "not_connected"
"""Code of the error of a call for which there is no engine."""
AT_ONCE = 2
"""Downloads that run together; others wait their turn."""


class ModelLibrary(QObject):
    """``engine`` performs operations. ``command`` is how `kvasir models` is started, ``quantise`` how `kvasir quantise`
    is; an empty one means that there is none, and nothing is downloaded or made."""

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

    def __init__(
        self,
        engine: Caller,
        command: Sequence[str] = (),
        quantise: Sequence[str] = (),
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._engine, self._command = engine, list(command)
        self.maker = Maker(engine, quantise, self)
        self.maker.making.done.connect(self._on_made)
        self.stored: list[StoredModel] = []
        self.listed = False
        """True if the models on this machine are known."""
        self.unlisted = ""
        """Reason that they are not."""
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
        self._lost: dict[str, Callable[[], object]] = {}
        """By what they ask, questions that the engine could not be asked: they are asked again when it answers."""
        self._searching: PendingCall[Any, Any] | None = None
        self._fitting: PendingCall[Any, Any] | None = None
        self._listing: PendingCall[Any, Any] | None = None
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
        self._judging = False
        self.judged = False
        """True if the engine has judged them for this machine."""
        self.drafts: dict[str, list[DraftOffer] | str] = {}
        """Drafts for the models, by path, or the reason they cannot be told."""
        self._offering: dict[str, PendingCall[Any, Any]] = {}
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
        if self._listing is not None:  # what it sees may be older than what happened now
            self._again = True
            return
        listing = operations.LIST_MODELS, operations.ListModels()
        self._listing = self._engine.call(*listing, self._on_listed, self._on_unlisted)
        waiting = operations.LIST_DOWNLOADS, operations.ListDownloads()
        self._engine.call(*waiting, lambda found: self.fetching.merge({download.id: download for download in found}))

    def _on_listed(self, found: ModelList) -> None:
        self._listing, self.unlisted = None, ""
        left_out = found.left_out[-1] if found.left_out else ""
        if left_out not in ("", self._left_out):
            self.failed.emit(left_out)
        self._left_out = left_out
        if {each.path for each in found.models} != {each.path for each in self.stored}:
            self._forget_drafts()  # others may draft now
        self.stored, self.folders, self.watched = found.models, found.folders, found.watched
        self.listed = True
        self.stored_changed.emit()
        for model in found.models:
            if model.path in self._arriving:
                self._arriving.discard(model.path)
                self.arrived.emit(model.name.removeprefix("made/"), model.path)
        lost, self._lost = self._lost, {}
        for ask in lost.values():
            ask()
        self._look_again()

    def _on_unlisted(self, error: Error) -> None:
        self._listing, self.unlisted = None, error.message
        if error.code == NOT_CONNECTED:  # it is listed again when the engine is there
            self.stored_changed.emit()
        else:
            self.failed.emit(error.message)
        self._look_again()

    def _look_again(self) -> None:
        if self._again:
            self._again = False
            self.refresh()

    def judge(self) -> None:
        """Have the engine judge which models suit this machine."""

        def done(judged: Recommended | None) -> None:
            self._judging = False
            if judged is not None:
                self.show_judged(judged)

        if not self._judging:
            self._judging = True
            self._engine.call(operations.RECOMMEND, operations.Recommend(), done, lambda _: done(None))

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
        if path in self._offering:
            return

        def done(found: list[DraftOffer] | str) -> None:
            del self._offering[path]
            self.drafts[path] = found
            self.drafts_changed.emit(path)

        asked = operations.OFFER_DRAFTS, operations.OfferDrafts(model=path)
        failed = self._or_again(f"drafts {path}", partial(self.offer_drafts, path), done)
        self._offering[path] = self._engine.call(*asked, done, failed)

    def _forget_drafts(self) -> None:
        self.drafts.clear()
        for call in self._offering.values():
            call.cancel()
        self._offering.clear()

    def search(self, asked: operations.SearchModels) -> None:
        """Look on the hub; a search that still runs is given up."""
        if self._searching is not None:
            self._searching.cancel()

        def done(found: list[HubModel] | str) -> None:
            self._searching = None
            self.found, self.trouble = ([], found) if isinstance(found, str) else (found, "")
            self.found_changed.emit()

        failed = self._or_again("search", partial(self.search, asked), done)
        self._searching = self._engine.call(operations.SEARCH_MODELS, asked, done, failed)
        self.found_changed.emit()

    def end_search(self) -> None:
        """Give up a search that still runs, and forget what the last one found or failed at."""
        if self._searching is not None:
            self._searching.cancel()
            self._searching = None
        self._lost.pop("search", None)
        self.found, self.trouble = [], ""
        self.found_changed.emit()

    def ask(self, repository: str) -> None:
        """Look up the content of a repository, into :attr:`repositories`."""
        if repository in self._asking:
            return
        self._asking.add(repository)

        def done(answer: HubRepository | str) -> None:
            self._asking.discard(repository)
            self.repositories[repository] = answer
            self.repository_changed.emit(repository)
            self._fit(repository)

        asked = operations.SHOW_REPOSITORY, operations.ShowRepository(repository=repository)
        self._engine.call(*asked, done, self._or_again("repository", partial(self.ask, repository), done))

    def set_loaded(self, credit: int, repository: str = "") -> None:
        """Another model is loaded, which holds ``credit`` bytes: what was planned is out of date. The fit of
        ``repository`` is planned anew."""
        if credit == self.credit:
            return
        self.credit = credit
        self.fits.clear()
        if self._fitting is not None:
            self._fitting.cancel()
            self._fitting, self.fitting = None, ""
        self._fit(repository)

    def _fit(self, repository: str) -> None:
        """Check if its variants fit, into :attr:`fits`; nothing is said of it if that cannot be told. One at a time:
        the last that was asked for."""
        answer = self.repositories.get(repository)
        variants = answer.variants if isinstance(answer, HubRepository) else []
        if not variants or repository in self.fits:
            return
        if self._fitting is not None:
            self._fitting.cancel()

        def done(reports: list[FitReport] | str) -> None:
            self._fitting, self.fitting = None, ""
            if not isinstance(reports, str):
                self.fits[repository] = {report.variant: report for report in reports}
            self.repository_changed.emit(repository)

        self.fitting = repository
        asked = operations.FIT_MODEL, operations.FitModel(model=repository, credit=self.credit)
        failed = self._or_again("fit", partial(self._fit, repository), done)
        self._fitting = self._engine.call(*asked, done, failed)
        self.repository_changed.emit(repository)

    def get(self, repository: str, variant: str, helper: bool = False) -> None:
        """Download a variant, when it is its turn; from now on it is in the list of downloads, whatever happens.
        ``helper``: it is to draft for another model, so its arrival is not told."""

        def added(download: Download) -> None:
            self._adding.discard((repository, variant))
            self.fetching.add(download.id, download)
            self.downloads_changed.emit()

        def failed(error: Error) -> None:
            self._adding.discard((repository, variant))
            self.failed.emit(error.message)
            self.downloads_changed.emit()

        (self._helpers.add if helper else self._helpers.discard)((repository, variant))
        if (repository, variant) not in self._adding:
            self._adding.add((repository, variant))
            self.downloads_changed.emit()
            asked = operations.AddDownload(repository=repository, variant=variant)
            self._engine.call(operations.ADD_DOWNLOAD, asked, added, failed)

    def remove(self, path: str) -> None:
        """Delete a model that was fetched or copied; forget one that was imported where it lies."""
        asked = operations.REMOVE_MODEL, operations.RemoveModel(model=path)
        self._engine.call(*asked, lambda _: self.refresh(), self._on_failed)

    def bring(self, path: str) -> None:
        """Import a model from where it lies."""

        def done(found: operations.Imported) -> None:
            self._arriving.add(found.path)
            self._on_worked()

        self.working.emit(f"Looking into {path}…")
        self._engine.call(operations.IMPORT_MODEL, operations.ImportModel(path=path), done, self._on_not_worked)

    def describe(self, path: str) -> None:
        """Read a model's headers, into :attr:`details`."""

        def done(answer: ModelDetails | str) -> None:
            self.details = {path: answer}
            self.described.emit(path)

        asked = operations.DESCRIBE_MODEL, operations.DescribeModel(model=path)
        self._engine.call(*asked, done, self._or_again("details", partial(self.describe, path), done))

    def tokens(
        self, path: str, text: str, take: Callable[[TextTokens], object], failed: Callable[[Error], object]
    ) -> PendingCall[Any, Any]:
        """A text as a model's tokenizer reads it."""
        return self._engine.call(operations.READ_TOKENS, operations.ReadTokens(model=path, text=text), take, failed)

    def look_at_disk(self, delete: str = "") -> None:
        """Look up what takes disk space besides models and downloads, into :attr:`leftovers`. ``delete``: the path of
        one that is deleted first."""

        def done(found: operations.DiskUse) -> None:
            self.leftovers = found.leftovers
            self.disk_changed.emit()

        asked = operations.LOOK_AT_DISK, operations.LookAtDisk(delete=delete)
        self._engine.call(*asked, done, self._or_again("disk", self.look_at_disk, self.failed.emit))

    def change_folders(self, how: str, path: str) -> None:
        """``how``: "add", "remove", "downloads" or "move_to", as `kvasir models folders` has them."""
        store = next((each.path for each in self.folders if each.store), "")

        def done(_: Folders) -> None:
            if how == "move_to" and store:
                self.store_moved.emit(store, path)
            self._on_worked()

        def take(moved: StoreMove) -> None:
            self.working.emit(f"Moving the models to {path}: {size(moved.done)} of {size(moved.total)}")

        asked = operations.CHANGE_FOLDERS, operations.ChangeFolders(**{how: path})
        self._engine.call(*asked, done, self._on_not_worked, take)

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

    def _or_again(
        self, what: str, ask: Callable[[], object], done: Callable[[str], object]
    ) -> Callable[[Error], object]:
        """Handler of a question's error: ``done`` is told its sentence, and without an engine it is asked again."""

        def failed(error: Error) -> None:
            done(error.message)
            if error.code == NOT_CONNECTED:
                self._lost[what] = ask

        return failed

    def _on_downloaded(self, job: Download) -> None:
        if not any(job.repository == each and names(variant, job.variant) for each, variant in self._helpers):
            self._arriving.add(job.path)
        self.refresh()

    def _on_made(self, job: MakeProgress) -> None:
        self._arriving.add(job.path)
        self.refresh()

    def _on_worked(self) -> None:
        self.working.emit("")
        self.refresh()

    def _on_not_worked(self, error: Error) -> None:
        self.working.emit("")
        self._on_failed(error)

    def _on_failed(self, error: Error) -> None:
        self.failed.emit(error.message)
        self.refresh()

    def _on_changed(self, end: End) -> None:
        if not end.ok:
            self.failed.emit(end.sentence)
        self.refresh()

    def _start(self, job: Download, take: Callable[[Download], object], done: Callable[[End], object]) -> LineCommand:
        limit = ["--limit", str(self.limit())] if self.limit() else []
        name, arguments = "kvasir models resume", ["resume", "--json", *limit, job.id]
        return LineCommand(self._command, arguments, decode_library_record, name, self).heard(take, done)

    def _discard(self, job: Download, done: Callable[[End], object]) -> None:
        asked = operations.LIST_DOWNLOADS, operations.ListDownloads(cancel=job.id)
        self._engine.call(*asked, lambda _: done(End(True)), lambda error: done(End(False, error.message)))


def _unjudged() -> list[Recommendation]:
    """The list of recommended models as it is installed; none where it is missing or broken."""
    file = paths.assets_dir() / "models.json"
    listed = decode_file(file, CuratedList, MOST_LISTED)
    if listed is None:
        log.error("the list of recommended models cannot be read: %s", file)
        return []
    return [Recommendation(model=model, verdict="") for model in listed.models]
