"""Embeddings of one document's passages by one model: what is kept of them, and the engine computes the others."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from app.documents.passages import SPLITTING, split
from app.documents.records import Document
from app.documents.vectors import VectorFile, VectorFolder, VectorHead
from app.language import tr
from app.link.calls import Caller, PendingCall
from engine import protocol
from engine.protocol import EmbeddedTexts, EmbedTexts, TextEmbeddings, operations

MOST_PASSAGES = 5000
"""Of a document whose passages get embeddings."""
OTHER = tr("The embedding model changed meanwhile. Ask again.")
UNKEPT = tr("Their embeddings could not be kept: {why}.")


class Failure(NamedTuple):
    """``reason``: a sentence. ``lasts``: it lies in the document, so that another try fails, too. ``changed``: another
    model answered than before."""

    reason: str
    lasts: bool = False
    changed: bool = False


class DocumentEmbedder:
    """Has the engine do one thing after the other, and hears nothing more of it after :meth:`cancel`. ``failed`` hears
    why it does not go on."""

    def __init__(
        self,
        engine: Caller,
        kept: VectorFolder,
        model: str,
        document: Document,
        failed: Callable[[Failure], object],
    ) -> None:
        self.document, self.model = document, model
        self._engine, self._kept, self._failed = engine, kept, failed
        self._known: TextEmbeddings | None = None
        """The model, as it answered first."""
        self._question = b""
        self._places: list[tuple[int, int]] = []
        self._file: VectorFile | None = None
        self._call: PendingCall[EmbeddedTexts, TextEmbeddings] | None = None

    @property
    def busy(self) -> bool:
        """True while the engine is to answer."""
        return self._call is not None

    @property
    def opened(self) -> bool:
        """True once it is known what is kept."""
        return self._file is not None

    @property
    def done(self) -> int:
        """Passages whose embeddings are kept."""
        return self._file.done if self._file is not None else 0

    @property
    def total(self) -> int:
        return len(self._places)

    @property
    def name(self) -> str:
        """Name of the model, once it answered."""
        return self._known.model if self._known is not None else ""

    @property
    def path(self) -> Path:
        """The file of the embeddings, once it is open."""
        assert self._file is not None
        return self._file.path

    def learn(self, question: str, then: Callable[[tuple[float, ...]], object]) -> None:
        """Learn what the model is, and with it the embedding of a question; "" for none."""
        texts: list[str] = [question] if question else []
        kind: protocol.TextKind = "query" if question else "document"
        self._ask(texts, kind, self._take_question, lambda known: self._meet(known, then))

    def open(self) -> bool:
        """Look what is kept of the document by the model; False where ``failed`` heard that there can be nothing."""
        assert self._known is not None
        self._places = split(self.document.text)
        count = len(self._places)
        if count > MOST_PASSAGES:
            reason = tr(
                "It has {count:,} passages, and at most {most:,} are searched by meaning.",
                count=count,
                most=MOST_PASSAGES,
            )
            self._failed(Failure(reason, lasts=True))
            return False
        head = VectorHead(self._known.fingerprint, self._known.dimensions, count, SPLITTING)
        try:
            self._file = self._kept.open(self.document.digest, head)
        except OSError as error:
            self._failed(Failure(UNKEPT.format(why=error.strerror)))
            return False
        return True

    def embed(self, most: int, told: Callable[[], object], then: Callable[[], object]) -> None:
        """Have the next passages embedded, ``most`` of them; ``told`` hears that some more are kept."""
        places = self._places[self.done : self.done + most]
        texts = [self.document.text[start:end] for start, end in places]
        self._ask(texts, "document", lambda event: self._keep(event, told), lambda known: self._check(known, then))

    def cancel(self) -> None:
        """Have no more computed."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    def _ask(
        self,
        texts: list[str],
        kind: protocol.TextKind,
        take: Callable[[EmbeddedTexts], object],
        done: Callable[[TextEmbeddings], object],
    ) -> None:
        request = EmbedTexts(model=self.model, texts=texts, kind=kind)
        self._call = self._engine.call(
            operations.EMBED_TEXTS, request, done, lambda error: self._give_up(Failure(error.message)), take
        )

    def _take_question(self, event: EmbeddedTexts) -> None:
        self._question = event.vectors

    def _meet(self, known: TextEmbeddings, then: Callable[[tuple[float, ...]], object]) -> None:
        self._call, self._known = None, known
        count = len(self._question) // 4
        if count not in (0, known.dimensions):
            self._failed(Failure(OTHER, changed=True))
        else:
            then(struct.unpack(f"<{count}f", self._question))

    def _keep(self, event: EmbeddedTexts, told: Callable[[], object]) -> None:
        assert self._file is not None
        try:
            self._file = self._kept.add(self._file, event.vectors)
        except OSError as error:
            self._give_up(Failure(UNKEPT.format(why=error.strerror)))
        except ValueError:  # of another length: another model answers
            self._give_up(Failure(OTHER, changed=True))
        else:
            told()

    def _check(self, known: TextEmbeddings, then: Callable[[], object]) -> None:
        assert self._file is not None
        assert self._known is not None
        self._call = None
        if known.fingerprint != self._known.fingerprint:
            self._kept.drop(self._file.path)
            self._failed(Failure(OTHER, changed=True))
        else:
            then()

    def _give_up(self, failure: Failure) -> None:
        self.cancel()
        self._failed(failure)
