"""Tokens of documents, counted by the engine once for each model."""

from __future__ import annotations

import itertools

from PySide6.QtCore import QObject, Signal

from app.documents.plan import estimated
from app.documents.prompt import framed
from app.documents.records import Document, MessageDocument
from app.link.link import EngineLink, LinkState
from engine import protocol

_ID = "document-"


class DocumentTokens(QObject):
    changed = Signal()
    """A count came."""

    def __init__(self, link: EngineLink, parent: QObject) -> None:
        super().__init__(parent)
        self._link = link
        self._model = ""
        self._counts: dict[tuple[str, str], int] = {}
        """By digest and name, with the present model."""
        self._asked: dict[str, tuple[Document, tuple[str, str]]] = {}
        self._numbers = itertools.count(1)
        link.counted.connect(self._on_counted)
        link.failed.connect(self._on_failed)
        link.loaded.connect(self._on_loaded)
        link.state_changed.connect(lambda *_: self._asked.clear())

    def of(self, document: Document) -> int | None:
        """Tokens of the whole document in its frame; None while that is not known, which is then asked."""
        key, link = (document.digest, document.name), self._link
        if key in self._counts:
            return self._counts[key]
        ready = link.card is not None and not link.idle and link.state is LinkState.CONNECTED
        if ready and all(asked != key for _, asked in self._asked.values()):
            number = f"{_ID}{next(self._numbers)}"
            self._asked[number] = document, key
            link.send(protocol.CountTokens(id=number, prompt=framed(MessageDocument(document))))
        return None

    def _on_counted(self, message: protocol.Counted) -> None:
        if message.id in self._asked:
            self._know(message.id, message.tokens)

    def _on_failed(self, error: protocol.Error) -> None:
        if error.id in self._asked:
            self._know(error.id, estimated(self._asked[error.id][0]))

    def _know(self, number: str, tokens: int) -> None:
        _, key = self._asked.pop(number)
        self._counts[key] = tokens
        self.changed.emit()

    def _on_loaded(self, message: protocol.Loaded) -> None:
        if message.card.path != self._model:
            self._model = message.card.path
            self._counts.clear()
            self._asked.clear()
        self.changed.emit()
