"""Models and drafts that there are to choose from, and how the person wants them loaded. No widgets."""

from __future__ import annotations

import os

from app.link.link import EngineLink
from app.models.state.library import ModelLibrary
from app.settings.store import SettingsStore
from engine.protocol import DraftOffer, LoadOptions


class LoadChoice:
    """Asked wherever a model is chosen or loaded, so that all of them know the same."""

    def __init__(self, link: EngineLink, store: SettingsStore, library: ModelLibrary) -> None:
        self._link, self.store, self.library = link, store, library

    @property
    def known(self) -> dict[str, str]:
        """Name -> path of the models that the engine knows."""
        return {model.name: model.path for model in self._link.welcome.models} if self._link.welcome is not None else {}

    def path(self, model: str) -> str:
        """The path of a model that is named or given by its path."""
        return self.known.get(model, model)

    def load_options(self, model: str) -> LoadOptions:
        return self.store.settings.load_options(self.path(model))

    def default_draft(self, model: str) -> str | None:
        """Draft for a model; one that is not there any more does not keep the model from being loaded."""
        path, settings = self.path(model), self.store.settings
        own = settings.of(path).draft
        if own and own not in self.known.values() and not os.path.exists(own):
            return None if settings.draft else ""
        return settings.draft_of(path)

    def drafts(self, path: str) -> list[DraftOffer] | None:
        """Drafts for the model at a path; None if they are unknown, and then they are looked up for the next time."""
        found = self.library.drafts.answers.get(path)
        if found is None:
            self.library.drafts.ask(path)
        return found if isinstance(found, list) else None
