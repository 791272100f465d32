"""The server for other programs as the window knows it: its port, its keys and who asks. No widget is made here."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QObject, Signal

from app.link.calls import Caller, PendingCall
from app.server import words
from app.server.configurations import Values
from app.settings.store import SettingsStore
from engine.protocol import Error, ModelCard
from engine.protocol.access import AddedKey, AddKey, ListKeys, NamedKey, RevokeKey
from engine.protocol.operations import ADD_KEY, LIST_KEYS, LISTEN_FOR, REVOKE_KEY, WATCH_REQUESTS
from engine.protocol.serving import HttpRequests, ListenFor, Listening, WatchRequests

_NAMES = {"serve", "serve_port"}


class ServerState(QObject):
    """Opens the port that the settings name whenever there is an engine. Requests are watched while somebody looks."""

    changed = Signal()
    requests_changed = Signal()
    values_changed = Signal()
    """What is put into configurations."""

    def __init__(self, engine: Caller, store: SettingsStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine, self.store = engine, store
        self.url = ""
        """Address for other programs; "" while there is none."""
        self.problem = ""
        """Why there is none, though one is wanted."""
        self.key_problem = ""
        """What went wrong with a key."""
        self.keys: list[NamedKey] = []
        self.made: AddedKey | None = None
        """The key that was just made, with its secret, until the person has it."""
        self.requests = HttpRequests()
        self.card: ModelCard | None = None
        self._running = False
        """There is an engine."""
        self._asked: int | None = None
        """Port that the engine was asked to open, while it does; 0: none."""
        self._open = 0
        self._looks = False
        self._watch: PendingCall[Any, Any] | None = None
        store.changed.connect(lambda names: self._settle() if names & _NAMES else None)

    @property
    def wanted(self) -> int:
        """Port that is to be open; 0: none."""
        settings = self.store.settings
        return settings.serve_port if settings.serve else 0

    @property
    def status(self) -> str:
        if not self.wanted:
            return words.OFF
        return self.url or self.problem or (words.opening(self.wanted) if self._running else words.NO_ENGINE)

    @property
    def values(self) -> Values:
        """What stands in configurations now."""
        url = self.url or f"http://127.0.0.1:{self.store.settings.serve_port}"
        found = Values(url)
        if self.made is not None:
            found = found._replace(key=self.made.key)
        if self.card is not None:
            found = found._replace(model=self.card.name, context=self.card.context, pictures=self.card.pictures)
        return found

    def set_running(self, running: bool) -> None:
        """Whether there is an engine; a new one has nothing open and knows of no request."""
        self._running, self._open, self._asked = running, 0, None
        self.url = self.problem = ""
        self._watch = None
        if running:
            self.requests = HttpRequests()
            self.requests_changed.emit()
            self._settle()
            self.look(self._looks)
        else:
            self._tell()

    def set_card(self, card: ModelCard | None) -> None:
        """The model that is loaded."""
        self.card = card
        self.values_changed.emit()

    def look(self, looks: bool) -> None:
        """Whether somebody looks: then keys and requests are asked for."""
        self._looks = looks
        if not looks and self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if looks and self._running:
            self._list()
            if self._watch is None:
                self._watch = self._engine.call(WATCH_REQUESTS, WatchRequests(), on_event=self._on_requests)

    def add_key(self, name: str) -> None:
        self._engine.call(ADD_KEY, AddKey(name=name), self._on_made, self._on_key_error)

    def revoke(self, name: str) -> None:
        if self.made is not None and self.made.record.name == name:
            self.forget_made()
        self._engine.call(REVOKE_KEY, RevokeKey(name=name), lambda _: self._list(), self._on_key_error)

    def forget_made(self) -> None:
        """The person has the key that was made."""
        self.made = None
        self._tell()

    def _settle(self) -> None:
        """Have the wanted port opened, one call after the other."""
        if self._running and self._asked is None and self._open != self.wanted:
            self._asked = self.wanted
            self.url = self.problem = ""
            self._engine.call(LISTEN_FOR, ListenFor(port=self.wanted), self._on_listening, self._on_refused)
        self._tell()

    def _on_listening(self, answer: Listening) -> None:
        self.url = answer.url
        self._settled()

    def _on_refused(self, error: Error) -> None:
        self.problem = error.message
        self._settled()

    def _settled(self) -> None:
        if self._asked is not None:  # else it was another engine
            self._open, self._asked = self._asked, None
            self._settle()

    def _list(self) -> None:
        self._engine.call(LIST_KEYS, ListKeys(), self._on_keys, self._on_key_error)

    def _on_keys(self, keys: list[NamedKey]) -> None:
        self.keys, self.key_problem = keys, ""
        self._tell()

    def _on_made(self, made: AddedKey) -> None:
        self.made = made
        self._list()

    def _on_key_error(self, error: Error) -> None:
        self.key_problem = error.message
        self._tell()

    def _on_requests(self, told: HttpRequests) -> None:
        self.requests = told
        self.requests_changed.emit()

    def _tell(self) -> None:
        self.changed.emit()
        self.values_changed.emit()
