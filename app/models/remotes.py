"""Other servers on the page Models: added with address and key, their models to chat with, removed."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLineEdit, QPushButton, QVBoxLayout, QWidget

from app.language import tr
from app.models.state.remotes import RemoteServers
from app.theme.question import ask
from app.theme.widgets import ElidedLabel, caption, clear, fill, named, say
from engine.protocol import OfferedModel, RemoteModel, RemoteServer

ABOUT = tr(
    "Any server that speaks OpenAI's API: another Kvasir, vLLM, SGLang, llama.cpp, Ray Serve. What you ask its models "
    "is sent there. Its key is kept where the system keeps passwords, and told to nobody else."
)
NONE = tr("No server yet.")
ASKING = tr("Asking for its models…")
CHECKING = tr("Asking the server for its models…")
MOST_SHOWN = 50
"""Models of a server that are listed."""


class RemotesView(QWidget):
    """``chosen`` carries the model that is to answer in the chat on screen."""

    chosen = Signal(object)

    def __init__(self, remotes: RemoteServers) -> None:
        super().__init__()
        self._remotes = remotes
        self._shown: object = None
        self.url = self._field("url", tr("Address of the server"), tr("Address, e.g. https://example.org/v1"))
        self.key = self._field("key", tr("Key of the server"), tr("Key, if it asks for one"))
        self.key.setEchoMode(QLineEdit.EchoMode.Password)
        self.name = self._field("name", tr("Name of the server"), tr("Name, if not its host's"))
        self.add = QPushButton(tr("Add a server"))
        named(self.add, "remotes.add", title=self.add.text(), clicked=self._add)
        self.said = caption(name="remotes.said")
        self.none = caption(NONE, "remotes.none")
        self._list = fill(QVBoxLayout(), spacing=8)
        line = fill(QHBoxLayout(), (self.url, 3), (self.key, 2), (self.name, 2), self.add, spacing=8)
        column = fill(
            QVBoxLayout(self), caption(ABOUT), line, self.said, self.none, self._list, 1, margins=0, spacing=10
        )
        column.setContentsMargins(0, 0, 6, 0)
        remotes.changed.connect(self._show)
        remotes.added.connect(self._on_added)
        self._show()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._remotes.refresh()

    def _field(self, name: str, title: str, shown: str) -> QLineEdit:
        field = QLineEdit()
        field.setPlaceholderText(shown)
        named(field, f"remotes.{name}", title=title)
        field.returnPressed.connect(self._add)
        return field

    def _add(self) -> None:
        if self._remotes.adding:
            return
        if self.url.text().strip():
            self._remotes.add(self.url.text(), self.name.text(), self.key.text())
        else:
            self.url.setFocus()

    def _on_added(self) -> None:
        for field in (self.url, self.key, self.name):
            field.clear()

    def _show(self) -> None:
        remotes = self._remotes
        self.add.setEnabled(not remotes.adding)
        say(self.said, CHECKING if remotes.adding else remotes.problem, "caption" if remotes.adding else "bad")
        self.none.setVisible(not remotes.servers)
        shown = [(server, remotes.models.get(server.name)) for server in remotes.servers]
        if shown != self._shown:
            self._shown = shown
            clear(self._list)
            for server, models in shown:
                self._list.addWidget(self._card(server, models))

    def _card(self, server: RemoteServer, models: list[OfferedModel] | str | None) -> QFrame:
        card = named(QFrame(), card="choice")
        remove = QPushButton(tr("Remove…"))
        named(remove, f"remotes.remove.{server.name}", title=tr("Remove {name}", name=server.name), kind="quiet")
        remove.clicked.connect(lambda: self._ask_removal(server))
        head = fill(QVBoxLayout(), ElidedLabel(server.name, "figure"), caption(server.url), spacing=2)
        top = Qt.AlignmentFlag.AlignTop
        column = fill(QVBoxLayout(card), fill(QHBoxLayout(), (head, 1), (remove, 0, top)), margins=(14, 10, 12, 10))
        if server.warning:
            column.addWidget(named(caption(server.warning), role="warn"))
        if models is None or isinstance(models, str):
            column.addWidget(caption(ASKING) if models is None else named(caption(models), role="bad"))
            return card
        for model in models[:MOST_SHOWN]:
            column.addWidget(self._row(server, model))
        if len(models) != len(models[:MOST_SHOWN]) or not models:
            column.addWidget(caption(tr("It offers {count:,} models.", count=len(models))))
        return card

    def _row(self, server: RemoteServer, model: OfferedModel) -> QWidget:
        row = QWidget()
        use = QPushButton(tr("Chat", "the verb on a button"))
        title = tr("Chat with {model} on {server}", model=model.name, server=server.name)
        named(use, f"remotes.chat.{server.name}.{model.name}", title=title)
        remote = RemoteModel(server=server.name, model=model.name)
        use.clicked.connect(lambda: self.chosen.emit(remote))
        told = tr("{tokens:,} tokens of context", tokens=model.context)
        context = caption(told if model.context else tr("context not told"))
        context.setWordWrap(False)
        fill(QHBoxLayout(row), (ElidedLabel(model.name, ""), 1), context, use, margins=0, spacing=16)
        return row

    def _ask_removal(self, server: RemoteServer) -> None:
        question = tr("Chats that use a model of {name} keep their texts, and ask for another model.", name=server.name)
        do = lambda: self._remotes.remove(server.name)  # noqa: E731
        ask(self.window(), "remotes.remove", tr("Remove a server"), question, tr("Remove"), do)
