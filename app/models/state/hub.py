"""Models of the hub as the window knows them: what a search found, the files of repositories, whether these fit."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.link.calls import Caller
from app.link.lookups import Lookups
from engine.protocol import FitReport, HubModel, HubRepository, operations
from engine.protocol.operations import FitModel, SearchModels, ShowRepository


class HubModels(QObject):
    """One search and one fit are looked up at a time: the last that was asked for."""

    found_changed = Signal()
    repository_changed = Signal(object)
    """The repository of which more is known, or which is being looked into."""

    def __init__(self, engine: Caller, parent: QObject) -> None:
        super().__init__(parent)
        self._asked: SearchModels | None = None
        self._searches: Lookups[SearchModels, list[HubModel]] = Lookups(
            engine, operations.SEARCH_MODELS, lambda asked: asked, self
        )
        self.repositories: Lookups[str, HubRepository] = Lookups(
            engine, operations.SHOW_REPOSITORY, lambda repository: ShowRepository(repository=repository), self
        )
        self.credit = 0
        """Bytes that become free when the model that is loaded is dropped."""
        self._fits: Lookups[str, list[FitReport]] = Lookups(
            engine, operations.FIT_MODEL, lambda repository: FitModel(model=repository, credit=self.credit), self
        )
        self._searches.changed.connect(lambda _: self.found_changed.emit())
        self.repositories.changed.connect(self.repository_changed)
        self.repositories.changed.connect(self._fit)
        self._fits.changed.connect(self.repository_changed)

    @property
    def searching(self) -> bool:
        return bool(self._searches.pending)

    @property
    def found(self) -> list[HubModel]:
        """Models that the last search found."""
        answer = self._searches.answers.get(self._asked) if self._asked is not None else None
        return answer if isinstance(answer, list) else []

    @property
    def trouble(self) -> str:
        """Reason the last search found nothing it could."""
        answer = self._searches.answers.get(self._asked) if self._asked is not None else None
        return answer if isinstance(answer, str) else ""

    def search(self, asked: SearchModels | None) -> None:
        """Look on the hub; a search that still runs is given up. None: that is all, and nothing is found any more."""
        self._searches.forget()
        self._asked = asked
        if asked is not None:
            self._searches.ask(asked)
        self.found_changed.emit()

    @property
    def fitting(self) -> str:
        """The repository whose fit is being planned."""
        return next(iter(self._fits.pending), "")

    def fits_of(self, repository: str) -> dict[str, FitReport]:
        """Fits of a repository's variants by their names, if they could be told."""
        reports = self._fits.answers.get(repository)
        return {report.variant: report for report in reports} if isinstance(reports, list) else {}

    def set_loaded(self, credit: int, repository: str = "") -> None:
        """Another model is loaded, which holds ``credit`` bytes: what was planned is out of date. The fit of
        ``repository`` is planned anew."""
        if credit != self.credit:
            self.credit = credit
            self._fits.forget()
            self._fit(repository)

    def _fit(self, repository: str) -> None:
        """Check if its variants fit; nothing is said of it if that cannot be told."""
        answer = self.repositories.answers.get(repository)
        if isinstance(answer, HubRepository) and answer.variants and not self.fits_of(repository):
            self._fits.stop()
            self._fits.ask(repository)
            self.repository_changed.emit(repository)
