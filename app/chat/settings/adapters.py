"""Adapters of the shown chat: chosen in its settings, loaded from a folder, unloaded."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app import model_dialog
from app.chat.session.session import ChatSession
from app.chat.settings.chat_settings import ChatSettings
from app.language import tr
from app.link.link import EngineLink
from engine import protocol

NAMES = f"{tr('LoRA adapters (adapter_config.json adapter_model.safetensors)')};;{tr('All files (*)')}"
CONFIG = "adapter_config.json"


def is_adapter(path: str) -> bool:
    return (Path(path) / CONFIG).is_file()


class ChatAdapters(QObject):
    """An adapter that was loaded from a chat's settings answers in that chat from then on."""

    def __init__(self, link: EngineLink, session: ChatSession, settings: ChatSettings, window: QWidget) -> None:
        super().__init__(window)
        self._link, self._session, self._choice, self._window = link, session, settings.adapter, window
        self._settings = settings
        self._folder = ""
        self._awaited: tuple[str, str] = ("", "")
        """The adapter that is being loaded, and for which chat."""
        self._choice.chosen.connect(session.set_adapter)
        self._choice.load_asked.connect(self.ask)
        self._choice.unload_asked.connect(lambda name: link.send(protocol.UnloadAdapter(name=name)))
        link.adapters_changed.connect(self._on_adapters)
        link.failed.connect(self._on_failed)
        for signal in (session.opened, session.settings_changed, link.welcomed, link.loaded, link.unloaded):
            signal.connect(self._show)
        self._show()

    def ask(self) -> None:
        """Let the person choose the folder of an adapter, and load it."""
        self._settings.hide()
        path = model_dialog.ask(self._window, tr("Load a LoRA adapter"), self._folder, NAMES, is_adapter)
        if path:
            self.load(str(Path(path).parent) if Path(path).is_file() else path)

    def load(self, folder: str) -> None:
        self._folder = str(Path(folder).parent)
        taken = {card.name for card in self._link.adapters} | {self._link.card.name if self._link.card else ""}
        own = Path(folder).name
        names = (own if number == 1 else f"{own} {number}" for number in count(1))
        name = next(name for name in names if name not in taken)
        self._awaited = name, self._session.talk.chat.id
        self._link.send(protocol.LoadAdapter(name=name, path=folder))

    def _on_adapters(self, message: protocol.Adapters) -> None:
        name, chat = self._awaited
        if any(card.name == name for card in message.adapters):
            self._awaited = ("", "")
            if self._session.talk.chat.id == chat:
                self._session.set_adapter(name)
        self._show()

    def _on_failed(self, error: protocol.Error) -> None:
        if not error.id:
            self._awaited = ("", "")

    def _show(self, *_: object) -> None:
        name, model = self._session.talk.chat.adapter, self._link.card is not None
        self._choice.show_for(self._link.adapters, name, model)
