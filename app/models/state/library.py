"""State of models as the window knows it: on this machine, on the hub and on their way. No widgets.

All of it is asked of the engine, by its operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.command import LineCommand
from app.language import tr
from app.link.calls import NOT_CONNECTED, Caller, PendingCall
from app.link.lookups import Lookups
from app.models.state.downloads import DownloadJobs
from app.models.state.hub import HubModels
from app.models.state.making import Maker
from app.models.state.remotes import RemoteServers
from app.models.state.verdicts import Verdicts
from app.words import size
from engine.protocol import (
    Download,
    DraftOffer,
    Error,
    Leftover,
    MakeProgress,
    ModelDetails,
    ModelFolder,
    StoredModel,
    StoreMove,
    TextTokens,
    operations,
)
from engine.protocol.operations import DescribeModel, Folders, ModelList, OfferDrafts


class ModelLibrary(QObject):
    """``engine`` performs operations. ``command`` is how `kvasir models` is started, ``quantise`` how `kvasir quantise`
    is; an empty one means that there is none, and nothing is downloaded or made."""

    stored_changed = Signal()
    arrived = Signal(str, str)
    """Name and path of a model that came because the person asked for it: downloaded, made or imported."""
    disk_changed = Signal()
    store_moved = Signal(str, str)
    """Kvasir's models lay in the first folder and lie in the second one now."""
    working = Signal(str)
    """Work under way that takes a while, as a sentence; "" once it is over."""
    failed = Signal(str)
    """Reason something that was asked for was not done, as a sentence."""

    def __init__(
        self, engine: Caller, command: Sequence[str] = (), quantise: Sequence[str] = (), parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._engine = engine
        self.hub = HubModels(engine, self)
        self.remotes = RemoteServers(engine, self)
        self.verdicts = Verdicts(engine, self)
        self.downloads = DownloadJobs(engine, command, self)
        self.maker = Maker(engine, quantise, self)
        self.drafts: Lookups[str, list[DraftOffer]] = Lookups(
            engine, operations.OFFER_DRAFTS, lambda path: OfferDrafts(model=path), self
        )
        """Drafts for the models, by path."""
        self.details: Lookups[str, ModelDetails] = Lookups(
            engine, operations.DESCRIBE_MODEL, lambda path: DescribeModel(model=path), self
        )
        """By path: what models' headers say."""
        self.stored: list[StoredModel] = []
        self.listed = False
        """True if the models on this machine are known."""
        self.unlisted = ""
        """Reason that they are not."""
        self._arriving: set[str] = set()
        """The paths of models that came and are not listed yet."""
        self.folders: list[ModelFolder] = []
        self.watched: list[str] = []
        """Folders in which models come and go."""
        self.leftovers: list[Leftover] = []
        """Leftovers that may be deleted besides models and downloads; see :meth:`look_at_disk`."""
        self._disk_unseen = False
        """True if there was no engine to be asked about them."""
        self._listing: PendingCall[Any, Any] | None = None
        self._left_out = ""
        """Parts that the last list said it could not offer, which is told once."""
        self._again = False
        """True if another listing follows the one that runs."""
        self.downloads.done.connect(self._on_downloaded)
        self.downloads.discarded.connect(self.refresh)
        self.downloads.failed.connect(self.failed)
        self.maker.done.connect(self._on_made)

    def refresh(self) -> None:
        """Look again at what is on this machine, and at downloads that wait."""
        if self._listing is not None:  # what it sees may be older than what happened now
            self._again = True
            return
        listing = operations.LIST_MODELS, operations.ListModels()
        self._listing = self._engine.call(*listing, self._on_listed, self._on_unlisted)
        self.downloads.refresh()

    def _on_listed(self, found: ModelList) -> None:
        self._listing, self.unlisted = None, ""
        left_out = found.left_out[-1] if found.left_out else ""
        if left_out not in ("", self._left_out):
            self.failed.emit(left_out)
        self._left_out = left_out
        if {each.path for each in found.models} != {each.path for each in self.stored}:
            self.drafts.forget()  # others may draft now
        self.stored, self.folders, self.watched = found.models, found.folders, found.watched
        self.listed = True
        self.stored_changed.emit()
        for model in found.models:
            if model.path in self._arriving:
                self._arriving.discard(model.path)
                self.arrived.emit(model.name.removeprefix("made/"), model.path)
        for lookups in self.findChildren(Lookups):
            lookups.ask_again()
        if self._disk_unseen:
            self.look_at_disk()
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

    @property
    def bundled_alone(self) -> bool:
        """True if no model is here but those that came with Kvasir, as far as is known."""
        return all(model.bundled or model.missing for model in self.stored)

    def remove(self, path: str) -> None:
        """Delete a model that was fetched or copied; forget one that was imported where it lies."""
        asked = operations.REMOVE_MODEL, operations.RemoveModel(model=path)
        self._engine.call(*asked, lambda _: self.refresh(), self._on_failed)

    def bring(self, path: str) -> None:
        """Import a model from where it lies."""

        def done(found: operations.Imported) -> None:
            self._arriving.add(found.path)
            self._on_worked()

        self.working.emit(tr("Looking into {path}…", path=path))
        self._engine.call(operations.IMPORT_MODEL, operations.ImportModel(path=path), done, self._on_not_worked)

    def tokens(
        self, path: str, text: str, take: Callable[[TextTokens], object], failed: Callable[[Error], object]
    ) -> PendingCall[Any, Any]:
        """A text as a model's tokenizer reads it."""
        return self._engine.call(operations.READ_TOKENS, operations.ReadTokens(model=path, text=text), take, failed)

    def look_at_disk(self, delete: str = "") -> None:
        """Look up what takes disk space besides models and downloads, into :attr:`leftovers`. ``delete``: the path of
        one that is deleted first."""

        def done(found: operations.DiskUse) -> None:
            self._disk_unseen, self.leftovers = False, found.leftovers
            self.disk_changed.emit()

        def failed(error: Error) -> None:
            self._disk_unseen = error.code == NOT_CONNECTED
            self.failed.emit(error.message)

        self._engine.call(operations.LOOK_AT_DISK, operations.LookAtDisk(delete=delete), done, failed)

    def change_folders(self, how: str, path: str) -> None:
        """``how``: "add", "remove", "downloads" or "move_to", as `kvasir models folders` has them."""
        store = next((each.path for each in self.folders if each.store), "")

        def done(_: Folders) -> None:
            if how == "move_to" and store:
                self.store_moved.emit(store, path)
            self._on_worked()

        def take(moved: StoreMove) -> None:
            done, total = size(moved.done), size(moved.total)
            self.working.emit(tr("Moving the models to {path}: {done} of {total}", path=path, done=done, total=total))

        asked = operations.CHANGE_FOLDERS, operations.ChangeFolders(**{how: path})
        self._engine.call(*asked, done, self._on_not_worked, take)

    def close_down(self) -> None:
        """Before the program ends: nothing is started any more; downloads go on next time."""
        runs = self.findChildren(LineCommand)
        for run in runs:
            run.stop()  # all at once: each may take a while
        for run in runs:
            run.drop()
        self.downloads.close_down()
        self.maker.close_down()

    def _on_downloaded(self, job: Download) -> None:
        if not self.downloads.helps(job):
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
