"""Choice of the model to load: first of all, from outside and again; and what is kept of it. No widget is made here."""

from __future__ import annotations

import os

from PySide6.QtCore import QObject

from app.language import tr
from app.link.link import EngineLink, LinkState
from app.models.state.loads import ModelLoads
from app.notice import NoticeBar
from app.opening import OPENING
from app.plots.strip import PlotStrip
from app.settings.engine import EngineSection
from app.settings.store import SettingsStore
from engine import protocol

_MODEL = "model"
RECENT = 8
"""Number of the models used last that the menu names."""


class ModelWiring(QObject):
    """Lives as long as the window."""

    def __init__(
        self,
        link: EngineLink,
        store: SettingsStore,
        loads: ModelLoads,
        settings: EngineSection,
        plots: PlotStrip,
        notice: NoticeBar,
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._link, self._store, self._loads, self._plots, self._notice = link, store, loads, plots, notice
        self._first_load_sent = False
        self._wanted = ""
        """Model to load first, in place of the model of last time."""
        settings.reload_requested.connect(self._reload)
        link.welcomed.connect(self._on_welcome)
        link.loaded.connect(self._on_loaded)
        link.unloaded.connect(self._on_unloaded)
        link.state_changed.connect(self._tell_idle_time)
        store.changed.connect(lambda names: self._tell_idle_time() if "unload_after" in names else None)

    def open(self, model: str) -> None:
        """Load a model that was asked for from outside; before the engine's greeting, as the first one."""
        if self._link.welcome is None:
            self._wanted = model
        else:
            self._loads.load_now(model)

    def _on_welcome(self, message: protocol.Welcome) -> None:
        if (message.loaded is None or self._wanted) and not self._first_load_sent:
            self._first_load(message.models)

    def _first_load(self, models: list[protocol.KnownModel]) -> None:
        """The model of last time while it is still there, else the first one the engine knows."""
        self._first_load_sent = True
        wanted, self._wanted = self._wanted or self._store.settings.model, ""
        known = {name for model in models for name in (model.name, model.path)}
        if wanted and (wanted in known or os.path.exists(wanted)):
            self._loads.load_now(wanted)
        elif models:
            self._loads.load_now(models[0].path or models[0].name)
        else:
            text = tr("No model is here. Get one on the page Models, or open a file with the model menu.")
            self._notice.say(text, topic=_MODEL)

    def _on_loaded(self, message: protocol.Loaded) -> None:
        path = message.card.path
        self._notice.clear(_MODEL)
        self._notice.clear(OPENING)
        if message.rebuilt:  # the same model; the switch has marked the cache of another kind
            return
        self._plots.mark(tr("model loaded"))
        recent = [path, *(other for other in self._store.settings.recent if other != path)]
        self._store.update(model=self._to_remember(path), recent=recent[:RECENT])

    def _to_remember(self, path: str) -> str:
        """The name of a model in one of Kvasir's folders, which may move, or be another version's next time."""
        models = self._link.welcome.models if self._link.welcome is not None else []
        return next((model.name for model in models if model.path == path), path)

    def _on_unloaded(self, message: protocol.Unloaded) -> None:
        if message.reason:
            self._notice.say(message.reason, topic=_MODEL)

    def _tell_idle_time(self, *_: object) -> None:
        if self._link.state is LinkState.CONNECTED:
            self._link.send(protocol.UnloadAfter(minutes=self._store.settings.unload_after))

    def _reload(self) -> None:
        if self._link.card is None:
            text = tr("No model is loaded. Choose one in the model menu, or get one on the page Models.")
            self._notice.say(text, topic=_MODEL)
        else:
            self._loads.reload()
