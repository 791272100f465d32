"""Presets: kept in the settings, offered in the settings of a chat, and put into new chats. No widget is made here."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import QObject

from app.chat.page import ChatPage
from app.link.link import EngineLink
from app.settings.store import Preset, SettingsStore


class PresetWiring(QObject):
    """Lives as long as the window."""

    def __init__(self, link: EngineLink, store: SettingsStore, chat: ChatPage, parent: QObject) -> None:
        super().__init__(parent)
        self._link, self._store, self._chat = link, store, chat
        self._begun_with = Preset()
        """Preset that the last new chat was given by the model's settings."""
        choice = chat.settings.preset
        choice.saved.connect(self._save)
        choice.renamed.connect(self._rename)
        choice.deleted.connect(lambda name: self._rename(name, ""))
        store.changed.connect(self._on_changed)
        chat.settings.offer_presets(store.settings.presets)
        for signal in (link.loaded, link.welcomed, chat.session.opened):
            signal.connect(self._begin_chat)

    def _save(self, name: str) -> None:
        made = Preset(*self._chat.settings.values())
        self._store.update(presets={**self._store.settings.presets, name: made})
        self._chat.settings.offer_presets(self._store.settings.presets, name)

    def _rename(self, old: str, new: str) -> None:
        """ "" deletes it. Models that begin chats with it follow."""
        settings = self._store.settings
        presets = {(new if name == old else name): preset for name, preset in settings.presets.items()}
        presets.pop("", None)
        models = {
            path: msgspec.structs.replace(own, preset=new) if own.preset == old else own
            for path, own in settings.models.items()
        }
        self._store.update(presets=presets, models=models)
        self._chat.settings.offer_presets(presets, new)

    def _on_changed(self, names: frozenset[str]) -> None:
        if "presets" in names:
            self._chat.settings.offer_presets(self._store.settings.presets)
        if {"presets", "models"} & names:
            self._begin_chat()

    def _begin_chat(self, *_: object) -> None:
        """Give a chat without messages the preset of the model, unless the person chose settings for it."""
        session, card, settings = self._chat.session, self._link.card, self._store.settings
        chat = session.talk.chat
        now = Preset(chat.system_prompt, chat.sampling)
        if session.talk.saved or card is None or now not in (self._begun_with, Preset()):
            return
        self._begun_with = settings.presets.get(settings.of(card.path).preset, Preset())
        if now != self._begun_with:
            session.set_settings(self._begun_with.system, self._begun_with.sampling)
