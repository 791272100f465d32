"""Embeddings of a document's passages and of a question, computed by the engine and kept. No widgets."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from app.documents.passages import SPLITTING, split
from app.documents.records import Document
from app.documents.vectors import VectorFile, VectorFolder, VectorHead
from app.language import tr
from app.link.calls import Caller, PendingCall
from engine import protocol
from engine.protocol import EmbeddedTexts, EmbedTexts, StoredModel, TextEmbeddings, operations

AUTO, OFF = "auto", "off"
"""Values of the setting that name no model: the smallest one that is here, and none."""
USUAL = "sentence-transformers/all-MiniLM-L6-v2"
"""Repository of a small model (91 MB) that many programs use for this."""
MOST_AUTO_BYTES = 1 << 30
"""Of a model that is taken without having been chosen: larger ones take minutes for a document on a processor."""
AT_ONCE = 512
"""Passages of one call."""
MOST_PASSAGES = 5000
"""Of a document whose passages get embeddings."""
WAIT_MS = 120_000
"""Milliseconds that a question waits for embeddings. Those that came are kept, and the next question goes on."""
OTHER = tr("The embedding model changed meanwhile. Ask again.")
NO_ANSWER = tr("The embedding model did not answer in time. Ask again.")
NO_NUMBERS = tr("The embedding model computes values that are not numbers. Choose another one in Settings.")
UNKEPT = tr("Their embeddings could not be kept: {why}.")


class Prepared(NamedTuple):
    """``model``: name of the one whose embeddings of all passages are in the file at ``path``, with that of the
    question; "": there are none, for a ``reason``."""

    model: str = ""
    path: str = ""
    question: Sequence[float] = ()
    reason: str = ""


class UnreadError(ValueError):
    """Its text is a sentence on why a document's passages get no embeddings."""


class PassageEmbeddings(QObject):
    """``model`` gives the path of the embedding model that is to be used, "" for none."""

    questions_ended = Signal()
    """No question waits for embeddings any more."""
    ahead_kept = Signal()
    """What was computed before a question came is kept."""

    def __init__(self, engine: Caller, folder: Path, parent: QObject) -> None:
        super().__init__(parent)
        self._engine = engine
        self.kept = VectorFolder(folder)
        self.model: Callable[[], str] = lambda: ""
        self.ahead = ""
        """Digest of the document of which some is computed before a question came (`app.documents.ahead`); "" for
        none."""
        self._preparing: set[Preparation] = set()

    @property
    def questioned(self) -> bool:
        """True while a question waits for embeddings."""
        return bool(self._preparing)

    def open(self, document: Document, known: TextEmbeddings) -> tuple[VectorFile, list[tuple[int, int]]]:
        """The file with what is kept of a document's embeddings by a model, and the places of its passages.

        Raises OSError, and :class:`UnreadError` for a document that is too long.
        """
        places = split(document.text)
        count = len(places)
        if count > MOST_PASSAGES:
            reason = tr(
                "It has {count:,} passages, and at most {most:,} are searched by meaning.",
                count=count,
                most=MOST_PASSAGES,
            )
            raise UnreadError(reason)
        head = VectorHead(known.fingerprint, known.dimensions, count, SPLITTING)
        return self.kept.open(document.digest, head), places

    def prepare(
        self,
        document: Document,
        question: str,
        told: Callable[[int, int], object],
        then: Callable[[Prepared], object],
        parent: QObject,
    ) -> Preparation | None:
        """Have the engine compute what of the embeddings is not kept; None where there is no model, or no question.

        ``told`` hears how many passages are done, of how many; ``then`` of the end, never before this returns.
        """
        model = self.model()
        if not model or not question.strip():
            return None
        made = Preparation(self._engine, self, model, document, question, told, then, parent)
        self._preparing.add(made)
        made.over.connect(lambda: self._let_go(made))
        return made

    def _let_go(self, preparation: Preparation) -> None:
        self._preparing.discard(preparation)
        if not self._preparing:
            self.questions_ended.emit()


class Preparation(QObject):
    """One question about one document; nothing is heard of it after :meth:`cancel`."""

    over = Signal()
    """It computes no more."""

    def __init__(
        self,
        engine: Caller,
        source: PassageEmbeddings,
        model: str,
        document: Document,
        question: str,
        told: Callable[[int, int], object],
        then: Callable[[Prepared], object],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._engine, self._source, self._model, self._document = engine, source, model, document
        self._kept, self._over = source.kept, False
        self._told, self._then = told, then
        self._places: list[tuple[int, int]] = []
        self._file: VectorFile | None = None
        self._question: tuple[float, ...] = ()
        self._known: TextEmbeddings | None = None
        """The model, as it answered to the question."""
        self._patience = QTimer(self, singleShot=True, interval=WAIT_MS)
        self._patience.setObjectName("passages-wait")
        self._patience.timeout.connect(self._on_slow)
        self._patience.start()
        self._call: PendingCall[EmbeddedTexts, TextEmbeddings] | None = None
        self._call = self._ask([question], "query", self._take_question, self._begin)

    def cancel(self) -> None:
        """Compute no more."""
        self._patience.stop()
        if self._call is not None:
            self._call.cancel()
            self._call = None
        self._then = lambda prepared: None
        if not self._over:
            self._over = True
            self.over.emit()
        self.deleteLater()

    def _ask(
        self,
        texts: list[str],
        kind: protocol.TextKind,
        take: Callable[[EmbeddedTexts], object],
        done: Callable[[TextEmbeddings], object],
    ) -> PendingCall[EmbeddedTexts, TextEmbeddings]:
        request = EmbedTexts(model=self._model, texts=texts, kind=kind)
        return self._engine.call(
            operations.EMBED_TEXTS, request, done, lambda error: self._end(Prepared(reason=error.message)), take
        )

    def _take_question(self, event: EmbeddedTexts) -> None:
        self._question = struct.unpack(f"<{len(event.vectors) // 4}f", event.vectors)

    def _begin(self, known: TextEmbeddings) -> None:
        """The model is known: look what is kept of it."""
        self._call, self._known = None, known
        if not all(map(math.isfinite, self._question)):
            self._end(Prepared(reason=NO_NUMBERS))
            return
        if len(self._question) != known.dimensions:
            self._end(Prepared(reason=OTHER))
            return
        if self._source.ahead == self._document.digest:  # some of its passages are computed right now: they are awaited
            self._source.ahead_kept.connect(self._open, Qt.ConnectionType.SingleShotConnection)
        else:
            self._open()

    def _open(self) -> None:
        if self._over:
            return
        assert self._known is not None
        try:
            self._file, self._places = self._source.open(self._document, self._known)
        except OSError as error:
            self._end(Prepared(reason=UNKEPT.format(why=error.strerror)))
            return
        except UnreadError as error:
            self._end(Prepared(reason=str(error)))
            return
        self._next()

    def _next(self) -> None:
        assert self._file is not None
        assert self._known is not None
        done, count = self._file.done, len(self._places)
        if done == count:
            self._end(Prepared(self._known.model, str(self._file.path), self._question))
            return
        self._told(done, count)
        texts = [self._document.text[start:end] for start, end in self._places[done : done + AT_ONCE]]
        self._call = self._ask(texts, "document", self._take, self._on_done)

    def _take(self, event: EmbeddedTexts) -> None:
        """Keep some more; what fails ends it."""
        assert self._file is not None
        try:
            self._file = self._kept.add(self._file, event.vectors)
        except OSError as error:
            self._give_up(UNKEPT.format(why=error.strerror))
        except ValueError:  # of another length: another model answers
            self._give_up(OTHER)
        else:
            self._told(self._file.done, len(self._places))

    def _on_done(self, known: TextEmbeddings) -> None:
        assert self._file is not None
        self._call = None
        if self._known is None or known.fingerprint != self._known.fingerprint:
            self._kept.drop(self._file.path)
            self._end(Prepared(reason=OTHER))
        else:
            self._next()

    def _on_slow(self) -> None:
        if self._file is None:
            self._give_up(NO_ANSWER)
            return
        reason = tr(
            "Only {done:,} of {count:,} passages were read in {seconds:.0f} seconds. The next question goes on with "
            "the others.",
            done=self._file.done,
            count=len(self._places),
            seconds=WAIT_MS / 1000,
        )
        self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        if self._call is not None:
            self._call.cancel()
            self._call = None
        self._end(Prepared(reason=reason))

    def _end(self, prepared: Prepared) -> None:
        self._patience.stop()
        then = self._then
        self.cancel()
        then(prepared)


def models_of(stored: Sequence[StoredModel]) -> list[StoredModel]:
    """The embedding models that are on this computer, the smallest first."""
    return sorted((each for each in stored if each.embeds and not each.missing), key=lambda each: each.bytes)


def chosen(setting: str, stored: Sequence[StoredModel]) -> str:
    """Path of the model that the setting means; "" for none."""
    if setting == OFF:
        return ""
    if setting != AUTO:
        return setting
    return next((each.path for each in models_of(stored) if each.bytes <= MOST_AUTO_BYTES), "")
