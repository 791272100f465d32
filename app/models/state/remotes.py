"""Other servers as the window knows them: their names, their models, and what went wrong. No widget is made here."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.link.calls import Caller
from engine.protocol import (
    AddedRemote,
    AddRemote,
    Error,
    ListRemoteModels,
    ListRemotes,
    OfferedModel,
    RemoteModel,
    RemoteServer,
    RemoveRemote,
)
from engine.protocol.operations import ADD_REMOTE, LIST_REMOTE_MODELS, LIST_REMOTES, REMOVE_REMOTE


class RemoteServers(QObject):
    """Each server is asked for its models whenever the list is looked at."""

    changed = Signal()
    added = Signal()

    def __init__(self, engine: Caller, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self.servers: list[RemoteServer] = []
        self.models: dict[str, list[OfferedModel] | str] = {}
        """By server: its models, or a sentence that says why there are none."""
        self.problem = ""
        """Why a server was not added or removed."""
        self.adding = False

    @property
    def offered(self) -> dict[str, list[RemoteModel]]:
        """The models of each server, as far as they are known; none of one that told none."""
        found = {each.name: self.models.get(each.name, "") for each in self.servers}
        return {
            name: [] if isinstance(models, str) else [RemoteModel(server=name, model=each.name) for each in models]
            for name, models in found.items()
        }

    def refresh(self) -> None:
        self._engine.call(LIST_REMOTES, ListRemotes(), self._on_listed, self._on_problem)

    def add(self, url: str, name: str, key: str) -> None:
        self.problem, self.adding = "", True
        self._engine.call(ADD_REMOTE, AddRemote(url=url, name=name, key=key), self._on_added, self._on_problem)
        self.changed.emit()

    def remove(self, name: str) -> None:
        self.problem = ""
        self._engine.call(REMOVE_REMOTE, RemoveRemote(name=name), self._keep, self._on_problem)

    def _on_listed(self, servers: list[RemoteServer]) -> None:
        self._keep(servers)
        for each in servers:
            self._ask(each.name)

    def _ask(self, name: str) -> None:
        self._engine.call(
            LIST_REMOTE_MODELS,
            ListRemoteModels(name=name),
            lambda models: self._on_models(name, models),
            lambda error: self._on_models(name, error.message),
        )

    def _on_models(self, name: str, models: list[OfferedModel] | str) -> None:
        self.models[name] = models
        self.changed.emit()

    def _on_added(self, answer: AddedRemote) -> None:
        self.adding = False
        self.models[answer.server.name] = answer.models
        self._keep([*self.servers, answer.server])
        self.added.emit()

    def _keep(self, servers: list[RemoteServer]) -> None:
        self.servers = servers
        self.changed.emit()

    def _on_problem(self, error: Error) -> None:
        self.problem, self.adding = error.message, False
        self.changed.emit()
