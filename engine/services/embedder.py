"""An embedding model next to the one that answers: read when texts come, and given up when none come any more.

It has an engine of its own, on the processor, so that neither model makes room for the other. What it computes gives
way to answers as the least urgent service class does.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine.base import stopping
from engine.base.errors import OperationFailed
from engine.base.stopping import Stop
from engine.decoding.scheduling.service import BATCH, INTERACTIVE
from engine.formats.fingerprint import fingerprint
from engine.formats.open import open_checkpoint
from engine.formats.pooling import folder_prompt
from engine.library import paths
from engine.protocol import LoadOptions
from engine.protocol.embedding import EmbeddedTexts, TextEmbeddings, TextKind
from engine.services.client import EngineClient, EngineError
from engine.text.cut import cut_ids
from engine.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.config.pooling import Pooling
    from engine.loading.model import LoadedModel

IDLE_SECONDS = 300.0
"""After the last text, for which the model stays: the next question of a chat comes meanwhile."""
AT_ONCE = 8
"""Texts that are read together: an answer that begins meanwhile waits for these, and not for all."""
WAITS = INTERACTIVE.weight / BATCH.weight
"""Seconds of rest for each second of work while answers are written on the same processor."""
_CLOSE_SECONDS = 5.0
_WORDS = {"query": ("query",), "document": ("document", "passage")}
"""What sentence-transformers' configurations call the two kinds of text."""


class _Loaded(NamedTuple):
    """A model in an engine of its own. ``bytes``: of its weights."""

    client: EngineClient
    path: str
    name: str
    fingerprint: str
    pooling: Pooling
    dimensions: int
    bytes: int

    def ids(self, text: str, kind: TextKind) -> list[int]:
        """Token ids of a text with its makers' words, as many as the model reads."""
        files, most = self.client.model.files, self.client.model.card.context
        assert files is not None
        tokenizer: Tokenizer = files.tokenizer
        folder = Path(self.path)
        text = next(filter(None, (folder_prompt(folder, word) for word in _WORDS.get(kind, ()))), "") + text
        ids = tokenizer.encode(text)
        return ids if len(ids) <= most else cut_ids(tokenizer, text, ids, most)


class Embedder:
    """For any thread. It serves some texts of one caller at a time, so that none waits for all of another's."""

    def __init__(
        self,
        answering: Callable[[], bool] = lambda: False,
        alone: Callable[[], bool] = lambda: False,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """``answering``: answers are written on this processor, to which it gives way. ``alone``: something is measured
        that nothing may disturb, whose end is waited for: :meth:`look` tells of it."""
        self._answering, self._alone, self._idle_seconds = answering, alone, idle_seconds
        self._line = threading.Condition()
        self._waiting: list[object] = []
        """Tickets of callers in their order; it is the first one's turn."""
        self._loaded: _Loaded | None = None
        self._last = "", ""
        """Name and path of the model that was used last."""
        self._timer: threading.Timer | None = None
        self._closed = False

    @property
    def bytes(self) -> int:
        """Bytes of the loaded model's weights; 0 without one."""
        loaded = self._loaded
        return 0 if loaded is None else loaded.bytes

    @property
    def name(self) -> str:
        """Name of the model that was used last, which requests may call it by; "" for none."""
        return self._last[0]

    def path_of(self, name: str) -> str:
        """The path of the model that was used last, if that is its name or its path; "" else."""
        return self._last[1] if name and name in self._last else ""

    def embed(
        self, model: str, texts: Sequence[str], kind: TextKind, tell: Callable[[EmbeddedTexts], object]
    ) -> TextEmbeddings:
        """Embed the texts, and ``tell`` of some at a time. Raises what :meth:`vectors` raises, and ModelNotFound."""
        path, tokens = paths.resolve(model, "")[0], 0
        for first, last in self._parts(len(texts)):
            with self._model(path) as loaded:
                began = time.monotonic()
                ids = [loaded.ids(text, kind) for text in texts[first:last]]
                vectors = self._vectors(loaded, ids, loaded.pooling)
            tokens += sum(map(len, ids))
            if vectors:
                tell(EmbeddedTexts(first=first, vectors=b"".join(map(_packed, vectors))))
            self._give_way(began, last < len(texts))
        return TextEmbeddings(
            model=loaded.name, fingerprint=loaded.fingerprint, dimensions=loaded.dimensions, tokens=tokens
        )

    def vectors(self, path: str, prompts: Sequence[Sequence[int]], pooling: Pooling) -> list[np.ndarray]:
        """Embeddings of prompts, float32 of any length. Raises CheckpointError, EngineError and
        :class:`OperationFailed` where they cannot be computed, and :class:`engine.base.stopping.Stopped`."""
        found: list[np.ndarray] = []
        for first, last in self._parts(len(prompts)):
            with self._model(path) as loaded:
                began = time.monotonic()
                found += self._vectors(loaded, prompts[first:last], pooling)
            self._give_way(began, last < len(prompts))
        return found

    def model(self, path: str) -> LoadedModel:
        """The model at ``path``, loaded. Raises what :meth:`vectors` raises."""
        with self._model(path) as loaded:
            return loaded.client.model

    def _parts(self, count: int) -> Iterator[tuple[int, int]]:
        """(first, last) of what is read together, fewer while answers are written; one that is empty for nothing."""
        first = 0
        while first == 0 or first < count:
            last = min(count, first + (1 if self._answering() else AT_ONCE))
            yield first, last
            first = max(1, last)

    def _give_way(self, began: float, more: bool) -> None:
        if more and self._answering():
            stopping.current().wait(WAITS * (time.monotonic() - began))

    @contextlib.contextmanager
    def _model(self, path: str) -> Iterator[_Loaded]:
        """The model for one turn."""
        with self._turn(stopping.current()):
            self._rest()
            try:
                yield self._opened(path)
            finally:
                self._count_idle()

    def look(self) -> None:
        """What is waited for may be over. For any thread."""
        with self._line:
            self._line.notify_all()

    def close(self) -> None:
        """Give the model up; texts that are being read come to an end with an error."""
        self._closed = True
        self.look()
        self._rest()
        self._give_up()

    @contextlib.contextmanager
    def _turn(self, stop: Stop) -> Iterator[None]:
        """Wait for those who came before, and for the end of what is measured. Raises Stopped, and OperationFailed
        once it is closed."""
        ticket = object()

        def over() -> bool:
            return self._closed or stop.is_set() or (self._waiting[0] is ticket and not self._alone())

        with self._line:
            self._waiting.append(ticket)
        try:
            with stop.waking(self.look), self._line:
                self._line.wait_for(over)
            stop.check()
            if self._closed:
                raise OperationFailed("The engine stops. Start it again.")
            yield
        finally:
            with self._line:
                self._waiting.remove(ticket)
                self._line.notify_all()

    def _count_idle(self) -> None:
        """Give the model up once the idle time is over."""
        if self._loaded is not None and not self._closed:
            self._timer = threading.Timer(self._idle_seconds, self._idle)
            self._timer.daemon = True
            self._timer.start()

    def _rest(self) -> None:
        """Count the idle time no more."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _idle(self) -> None:
        """The idle time is over."""
        with contextlib.suppress(OperationFailed), self._turn(Stop()):
            if self._timer is threading.current_thread():  # else it was used meanwhile
                self._timer = None
                self._give_up()

    def _give_up(self) -> None:
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            loaded.client.close(_CLOSE_SECONDS)

    def _vectors(self, loaded: _Loaded, prompts: Sequence[Sequence[int]], pooling: Pooling) -> list[np.ndarray]:
        """Raises EngineError; the model is read again then, if more texts come."""
        try:
            return loaded.client.embed(prompts, pooling)
        except EngineError:
            self._give_up()
            raise

    def _opened(self, path: str) -> _Loaded:
        """The model at ``path``, in place of another one. Raises EngineError, OperationFailed and CheckpointError."""
        if self._loaded is not None and self._loaded.path == path:
            return self._loaded
        checkpoint = open_checkpoint(path)
        name, pooling = checkpoint.path.name, checkpoint.pooling
        if checkpoint.ranks or pooling is None:
            raise OperationFailed(f"{name} makes no embeddings of texts. Choose a model that is made for them.")
        mark = fingerprint(checkpoint)
        self._give_up()
        client = EngineClient(device="cpu", stop=Stop())  # this work may be stopped, and the model stays
        try:
            _, fit = client.load(path, options=LoadOptions(device="cpu"))
        except BaseException:
            client.close(_CLOSE_SECONDS)
            raise
        self._loaded = _Loaded(client, path, name, mark, pooling, client.model.embedding_size, fit.weights)
        self._last = name, path
        return self._loaded


def _packed(vector: np.ndarray) -> bytes:
    """A vector at length 1, as it goes over the wire."""
    return (vector / max(float(np.linalg.norm(vector)), 1e-12)).astype("<f4").tobytes()
