"""Embeddings of documents' passages that are computed before a question comes, a few at a time. No widgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from PySide6.QtCore import QObject, Signal

from app.documents.embedder import DocumentEmbedder, Failure
from app.documents.meaning import PassageEmbeddings
from app.documents.records import Document

PIECE = 8
"""Passages of one call, as many as the engine reads together: a question waits for these at most."""


class ReadAhead(NamedTuple):
    """``done`` of ``total`` passages of a document have embeddings. ``reason``: a sentence on why the others get none
    until a question asks for them, "" for none; ``lasts``: it lies in the document."""

    done: int = 0
    total: int = 0
    reason: str = ""
    lasts: bool = False

    @property
    def over(self) -> bool:
        return bool(self.reason) or 0 < self.total == self.done


class EmbeddingsAhead(QObject):
    """Reads one document after the other, and waits while a question is; the engine itself gives way to answers."""

    changed = Signal()
    """:meth:`of` gives something else."""

    def __init__(self, source: PassageEmbeddings, parent: QObject) -> None:
        super().__init__(parent)
        self._source = source
        self._wanted: tuple[Document, ...] = ()
        self._known: dict[str, ReadAhead] = {}
        """By the digest of a document that is wanted, once something is known of it."""
        self._model = ""
        """The model of which that is known."""
        self._embedder: DocumentEmbedder | None = None
        """That of the document that was read last."""
        self._anew = ""
        """Digest of the document that was begun anew because another model answered, until that one embedded some."""
        source.questions_ended.connect(self._go_on)

    def of(self, document: Document) -> ReadAhead | None:
        """How far a document is read; None while nothing is known of it, or it is not wanted."""
        return self._known.get(document.digest)

    def want(self, documents: Sequence[Document]) -> None:
        """Read these, the first one first, and no others. The few passages that are being read are read to their end,
        so that none is read twice."""
        wanted = {each.digest: each for each in documents if each.text}
        if [*wanted] == [each.digest for each in self._wanted]:
            return
        self._wanted = tuple(wanted.values())
        self._know({digest: each for digest, each in self._known.items() if digest in wanted})
        self._next()

    def refresh(self) -> None:
        """Begin anew if another model is to be used."""
        if self._source.model() != self._model:
            self._know({})
            self._next()

    def retry(self, *_: object) -> None:
        """What hindered may be over: try again where there was no other reason than that."""
        self._know({digest: each for digest, each in self._known.items() if each.lasts or not each.reason})
        self._next()

    def stop(self) -> None:
        """Before the program ends."""
        self._wanted = ()
        if self._busy and self._embedder is not None:
            self._embedder.cancel()
            self._source.end_ahead()

    @property
    def _busy(self) -> bool:
        return self._embedder is not None and self._embedder.busy

    def _know(self, known: dict[str, ReadAhead]) -> None:
        if known != self._known:
            self._known = known
            self.changed.emit()

    def _go_on(self, embedded: bool) -> None:
        """What a question had read meanwhile is seen in the file. What did not hinder it (``embedded``) is over."""
        if not self._busy:
            self._embedder = None
        if embedded:
            self.retry()
        else:
            self._next()

    def _next(self) -> None:
        if self._busy or self._source.questioned:
            return
        model = self._source.model()
        document = next((each for each in self._wanted if not self._known.get(each.digest, ReadAhead()).over), None)
        if not model or document is None:
            return
        self._model = model
        made = self._embedder
        if made is None or not made.opened or (made.model, made.document.digest) != (model, document.digest):
            self._begin(document, model)
        else:
            self._go_further(made)
        self._source.begin_ahead(document)

    def _begin(self, document: Document, model: str) -> None:
        made = self._embedder = self._source.embedder(model, document, lambda failure: self._fail(made, failure))
        made.learn("", lambda _: self._open(made))

    def _open(self, made: DocumentEmbedder) -> None:
        if made.open():
            self._end(made, ReadAhead(made.done, made.total))

    def _go_further(self, made: DocumentEmbedder) -> None:
        def take() -> None:
            self._anew = ""
            self._end(made, ReadAhead(made.done, made.total))

        made.embed(PIECE, lambda: None, take)

    def _fail(self, made: DocumentEmbedder, failure: Failure) -> None:
        digest, self._embedder = made.document.digest, None
        if failure.changed and self._anew != digest:
            self._anew = digest
            self._let_go()
        else:
            self._end(made, ReadAhead(reason=failure.reason, lasts=failure.lasts))

    def _end(self, made: DocumentEmbedder, known: ReadAhead) -> None:
        """Some passages are read, or cannot be."""
        digest = made.document.digest
        if any(each.digest == digest for each in self._wanted) and made.model == self._source.model():
            self._know({**self._known, digest: known})
        self._let_go()

    def _let_go(self) -> None:
        self._source.end_ahead()
        self._next()
