"""A model's details from its headers, and a text as its tokenizer reads it."""

from __future__ import annotations

import threading
from pathlib import Path

from engine.formats.open import open_checkpoint
from engine.library import paths
from engine.library.details import details_of, tokens_of
from engine.protocol.library import ModelDetails, TextTokens
from engine.protocol.operations import DescribeModel, ReadTokens
from engine.services.operations import Context, Emit
from engine.text.tokenizer import Tokenizer

KEPT_SECONDS = 60.0
"""After a text, for which the tokenizer is kept for the next one: a person types."""


class _LastTokenizer:
    """The tokenizer that was used last, for a while: one is large, and takes seconds to read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._model = ""
        self._tokenizer: Tokenizer | None = None
        self._timer: threading.Timer | None = None

    def of(self, model: str) -> Tokenizer:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            tokenizer = self._tokenizer if self._model == model else None
            if tokenizer is None:
                tokenizer = open_checkpoint(paths.find_model(model).path).tokenizer()
            self._model, self._tokenizer = model, tokenizer
            self._timer = threading.Timer(KEPT_SECONDS, self._forget)
            self._timer.daemon = True
            self._timer.start()
            return tokenizer

    def _forget(self) -> None:
        with self._lock:
            self._model, self._tokenizer = "", None


_kept = _LastTokenizer()


def details(context: Context, request: DescribeModel, emit: Emit) -> ModelDetails:
    known = paths.find_model(request.model)
    return details_of(Path(known.path), known.name)


def tokens(context: Context, request: ReadTokens, emit: Emit) -> TextTokens:
    return tokens_of(_kept.of(request.model), request.text or "")
