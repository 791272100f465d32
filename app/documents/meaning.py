"""Embeddings of a document's passages and of a question, computed by the engine and kept. No widgets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from app.documents.embedder import DocumentEmbedder, Failure
from app.documents.records import Document
from app.documents.vectors import VectorFolder
from app.language import tr
from app.link.calls import Caller
from engine.protocol import StoredModel

AUTO, OFF = "auto", "off"
"""Values of the setting that name no model: the smallest one that is here, and none."""
USUAL = "sentence-transformers/all-MiniLM-L6-v2"
"""Repository of a small model (91 MB) that many programs use for this."""
MOST_AUTO_BYTES = 1 << 30
"""Of a model that is taken without having been chosen: larger ones take minutes for a document on a processor."""
AT_ONCE = 512
"""Passages of one call."""
WAIT_MS = 120_000
"""Milliseconds that a question waits for embeddings. Those that came are kept, and the next question goes on."""
NO_ANSWER = tr("The embedding model did not answer in time. Ask again.")
NO_NUMBERS = tr("The embedding model computes values that are not numbers. Choose another one in Settings.")


class Prepared(NamedTuple):
    """``model``: name of the one whose embeddings of all passages are in the file at ``path``, with that of the
    question; "": there are none, for a ``reason``."""

    model: str = ""
    path: str = ""
    question: Sequence[float] = ()
    reason: str = ""


class PassageEmbeddings(QObject):
    """``model`` gives the path of the embedding model that is to be used, "" for none."""

    questions_ended = Signal(bool)
    """No question waits for embeddings any more; True if the last one got them."""
    _ahead_ended = Signal()

    def __init__(self, engine: Caller, folder: Path, parent: QObject) -> None:
        super().__init__(parent)
        self._engine = engine
        self.kept = VectorFolder(folder)
        self.model: Callable[[], str] = lambda: ""
        self._ahead = ""
        """Digest of the document of which some is computed before a question came; "" for none."""
        self._preparing: set[Preparation] = set()

    @property
    def questioned(self) -> bool:
        """True while a question waits for embeddings."""
        return bool(self._preparing)

    def embedder(self, model: str, document: Document, failed: Callable[[Failure], object]) -> DocumentEmbedder:
        """What has a document's passages embedded by the model at a path, and keeps that."""
        return DocumentEmbedder(self._engine, self.kept, model, document, failed)

    def begin_ahead(self, document: Document) -> None:
        """Some of a document is computed before a question came, until :meth:`end_ahead`."""
        self._ahead = document.digest

    def end_ahead(self) -> None:
        """What was computed is kept."""
        self._ahead = ""
        self._ahead_ended.emit()

    def after_ahead(self, document: Document, then: Callable[[], object]) -> None:
        """Call a method once nothing of the document is computed ahead: at once, if nothing is."""
        if self._ahead == document.digest:
            self._ahead_ended.connect(then, Qt.ConnectionType.SingleShotConnection)
        else:
            then()

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
        made = Preparation(self, model, document, question, told, then, parent)
        self._preparing.add(made)
        made.over.connect(lambda: self._let_go(made))
        return made

    def _let_go(self, preparation: Preparation) -> None:
        self._preparing.discard(preparation)
        if not self._preparing:
            self.questions_ended.emit(preparation.embedded)


class Preparation(QObject):
    """One question about one document; nothing is heard of it after :meth:`cancel`."""

    over = Signal()
    """It computes no more."""

    def __init__(
        self,
        source: PassageEmbeddings,
        model: str,
        document: Document,
        question: str,
        told: Callable[[int, int], object],
        then: Callable[[Prepared], object],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._source, self._told, self._then = source, told, then
        self._over = False
        self.embedded = False
        """True if the question got embeddings."""
        self._question: tuple[float, ...] = ()
        self._patience = QTimer(self, singleShot=True, interval=WAIT_MS)
        self._patience.setObjectName("passages-wait")
        self._patience.timeout.connect(self._on_slow)
        self._patience.start()
        self._embedder = source.embedder(model, document, lambda failure: self._end(Prepared(reason=failure.reason)))
        self._embedder.learn(question, self._begin)

    def cancel(self) -> None:
        """Compute no more."""
        self._patience.stop()
        self._embedder.cancel()
        self._then = lambda prepared: None
        if not self._over:
            self._over = True
            self.over.emit()
        self.deleteLater()

    def _begin(self, question: tuple[float, ...]) -> None:
        """The model is known: look what is kept of it, where some is computed right now together with that."""
        if not all(map(math.isfinite, question)):
            self._end(Prepared(reason=NO_NUMBERS))
            return
        self._question = question
        self._source.after_ahead(self._embedder.document, self._open)

    def _open(self) -> None:
        if not self._over and self._embedder.open():
            self._next()

    def _next(self) -> None:
        made = self._embedder
        if made.done == made.total:
            self._end(Prepared(made.name, str(made.path), self._question))
        else:
            self._tell()
            made.embed(AT_ONCE, self._tell, self._next)

    def _tell(self) -> None:
        self._told(self._embedder.done, self._embedder.total)

    def _on_slow(self) -> None:
        made = self._embedder
        if not made.opened:
            self._end(Prepared(reason=NO_ANSWER))
            return
        reason = tr(
            "Only {done:,} of {count:,} passages were read in {seconds:.0f} seconds. The next question goes on with "
            "the others.",
            done=made.done,
            count=made.total,
            seconds=WAIT_MS / 1000,
        )
        self._end(Prepared(reason=reason))

    def _end(self, prepared: Prepared) -> None:
        then, self.embedded = self._then, bool(prepared.model)
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
