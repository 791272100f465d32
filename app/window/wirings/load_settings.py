"""Settings to load one model with: shown in a dialogue, kept, and followed. No other widget is made here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QWidget

from app.link.link import EngineLink
from app.models.load_settings import LoadSettingsDialog, Offers
from app.models.state.loads import ModelLoads
from app.settings.engine import device_key
from app.settings.store import ModelSettings
from app.theme.theme import Theme
from engine import protocol
from engine.protocol import keys


class LoadSettingsWiring(QObject):
    """Lives as long as the window. ``load`` opens a model by its path."""

    def __init__(
        self, link: EngineLink, loads: ModelLoads, load: Callable[[str], None], theme: Theme, window: QWidget
    ) -> None:
        super().__init__(window)
        self._link, self._choice, self._load = link, loads.choice, load
        self._store = loads.choice.store
        self._theme, self._window = theme, window
        loads.draft_chosen.connect(self._keep_draft)
        link.load_asked.connect(self._on_load_asked)

    def open(self, path: str) -> None:
        """Let the person choose how the model at ``path`` is loaded."""
        settings, card = self._store.settings, self._link.card
        loaded = card is not None and card.path == path
        own = settings.of(path)
        name = next((name for name, known in self._choice.known.items() if known == path), Path(path).name)
        dialog = LoadSettingsDialog(name, own, settings, self._offers(), loaded, self._theme, self._window)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.saved.connect(lambda own, load: self._save(path, own, load))
        dialog.open()

    def _save(self, path: str, own: ModelSettings, load: bool) -> None:
        self._keep(path, own)
        if load:
            self._load(path)

    def _keep(self, path: str, own: ModelSettings) -> None:
        models = {other: kept for other, kept in self._store.settings.models.items() if other != path}
        if own != ModelSettings():
            models[path] = own
        self._store.update(models=models)

    def _keep_draft(self, path: str, draft: str | None) -> None:
        """Keep the draft the person chose for a model, which drafts for it the next time, too."""
        self._keep(path, msgspec.structs.replace(self._store.settings.of(path), draft=draft))

    def _offers(self) -> Offers:
        welcome = self._link.welcome
        devices = (welcome.devices or [welcome.device]) if welcome is not None else []
        gpus = [device_key(device, devices) for device in devices if device.kind != "cpu"]
        drafts = {path: name for name, path in self._choice.known.items()}
        return Offers(
            ["auto", "cpu", *gpus], drafts, self._spec(), sorted(self._store.settings.presets, key=str.casefold)
        )

    def _on_load_asked(self, order: protocol.Load) -> None:
        """The precision of keys and values is a switch of the engine's: it is set before the load that needs it, and
        goes back to what it was before the next load that does not."""
        spec, settings = self._spec(), self._store.settings
        if spec is None:
            return
        now = str(self._link.wanted.get(spec.key, spec.default))
        own, before = settings.of(self._choice.path(order.model)).kv_kind, settings.kv_kind_before
        self._store.update(kv_kind_before="" if own is None else before or now)
        wanted = before or now if own is None else own
        if wanted != now:
            self._link.send(protocol.Set(key=spec.key, value=wanted))

    def _spec(self) -> protocol.OptionSpec | None:
        return next((spec for spec in self._link.catalogue if spec.key == keys.KV_KIND), None)
