"""Embeddings of documents' passages that are computed before a question comes, a few at a time. No widgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from PySide6.QtCore import QObject, Signal

from app.documents.meaning import OTHER, UNKEPT, PassageEmbeddings, UnreadError
from app.documents.records import Document
from app.documents.vectors import VectorFile
from app.link.calls import Caller, PendingCall
from engine import protocol
from engine.protocol import EmbeddedTexts, EmbedTexts, TextEmbeddings, operations

PIECE = 8
"""Passages of one call, as many as the engine reads together: a question waits for these at most."""


class ReadAhead(NamedTuple):
    """``done`` of ``total`` passages of a document have embeddings. ``reason``: a sentence on why the others get none
    until a question asks for them, "" for none."""

    done: int = 0
    total: int = 0
    reason: str = ""

    @property
    def over(self) -> bool:
        return bool(self.reason) or 0 < self.total == self.done


class _Work(NamedTuple):
    """The document whose passages are being read, with the model that reads them."""

    document: Document
    places: list[tuple[int, int]]
    file: VectorFile
    fingerprint: str


class EmbeddingsAhead(QObject):
    """Reads one document after the other, and waits while a question is; the engine itself gives way to answers."""

    changed = Signal()
    """:meth:`of` gives something else."""

    def __init__(self, engine: Caller, source: PassageEmbeddings, parent: QObject) -> None:
        super().__init__(parent)
        self._engine, self._source = engine, source
        self._wanted: tuple[Document, ...] = ()
        self._known: dict[str, ReadAhead] = {}
        """By the digest of a document that is wanted, once something is known of it."""
        self._model = ""
        self._work: _Work | None = None
        self._vectors = b""
        """What came of the passages that were asked for last."""
        self._call: PendingCall[EmbeddedTexts, TextEmbeddings] | None = None
        source.questions_ended.connect(self._go_on)

    def of(self, document: Document) -> ReadAhead | None:
        """How far a document is read; None while nothing is known of it, or it is not wanted."""
        return self._known.get(document.digest)

    def want(self, documents: Sequence[Document]) -> None:
        """Read these, the first one first, and no others. The few passages that are being read are read to their end,
        so that none is read twice."""
        wanted = {each.digest: each for each in documents}
        if [*wanted] == [each.digest for each in self._wanted]:
            return
        self._wanted = tuple(wanted.values())
        known = {digest: each for digest, each in self._known.items() if digest in wanted}
        if known != self._known:
            self._known = known
            self.changed.emit()
        self._next()

    def refresh(self) -> None:
        """Begin anew if another model is to be used."""
        if self._source.model() != self._model:
            self._work, self._known = None, {}
            self.changed.emit()
            self._next()

    def stop(self) -> None:
        """Before the program ends."""
        self._wanted = ()
        if self._call is not None:
            self._call.cancel()
            self._free()

    def _go_on(self) -> None:
        """What a question had read meanwhile is seen in the file."""
        if self._call is None:
            self._work = None
        self._next()

    def _next(self) -> None:
        if self._call is not None or self._source.questioned:
            return
        model = self._source.model()
        document = next((each for each in self._wanted if not self._known.get(each.digest, ReadAhead()).over), None)
        if not model or document is None:
            return
        if model != self._model or self._work is None or self._work.document.digest != document.digest:
            self._model, self._work = model, None
            self._ask(document, [])  # which tells what the model is
            return
        done = self._work.file.done
        self._ask(document, [document.text[start:end] for start, end in self._work.places[done : done + PIECE]])

    def _ask(self, document: Document, texts: list[str]) -> None:
        self._vectors = b""
        self._source.ahead = document.digest
        self._call = self._engine.call(
            operations.EMBED_TEXTS,
            EmbedTexts(model=self._model, texts=texts, kind="document"),
            lambda known: self._take(document, known),
            lambda error: self._fail(document, error),
            self._hear,
        )

    def _hear(self, event: EmbeddedTexts) -> None:
        self._vectors += event.vectors

    def _take(self, document: Document, known: TextEmbeddings) -> None:
        try:
            if self._work is None or known.fingerprint != self._work.fingerprint:
                file, places = self._source.open(document, known)  # another model has a file of its own
            else:
                file, places = self._source.kept.add(self._work.file, self._vectors), self._work.places
        except OSError as error:
            self._end(document, ReadAhead(reason=UNKEPT.format(why=error.strerror)))
        except UnreadError as error:
            self._end(document, ReadAhead(reason=str(error)))
        except ValueError:  # of another length: another model answers
            self._end(document, ReadAhead(reason=OTHER))
        else:
            self._work = _Work(document, places, file, known.fingerprint)
            self._end(document, ReadAhead(file.done, len(places)))

    def _fail(self, document: Document, error: protocol.Error) -> None:
        self._end(document, ReadAhead(reason=error.message))

    def _end(self, document: Document, known: ReadAhead) -> None:
        """Some passages are read, or cannot be."""
        wanted = any(each.digest == document.digest for each in self._wanted)
        if wanted and self._model == self._source.model():
            self._known[document.digest] = known
            self.changed.emit()
        self._free()
        self._next()

    def _free(self) -> None:
        self._call, self._source.ahead = None, ""
        self._source.ahead_kept.emit()
