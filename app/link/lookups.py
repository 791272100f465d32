"""Answers of one operation by what was asked, kept until they are forgotten."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from PySide6.QtCore import QObject, Signal

from app.link.calls import NOT_CONNECTED, Caller, PendingCall
from engine.protocol import Error
from engine.protocol.base import Part
from engine.protocol.calls import Operation

KeyT = TypeVar("KeyT", bound=Hashable)
AnswerT = TypeVar("AnswerT")


class Lookups(QObject, Generic[KeyT, AnswerT]):
    """``request`` says what the engine is asked about a key; at most one question about it is under way."""

    changed = Signal(object)
    """The key whose answer, or the reason there is none, is known now."""

    def __init__(
        self, engine: Caller, operation: Operation[Any, Any, AnswerT], request: Callable[[KeyT], Part], parent: QObject
    ) -> None:
        super().__init__(parent)
        self._engine, self._operation, self._request = engine, operation, request
        self.answers: dict[KeyT, AnswerT | str] = {}
        """The last answer about each key, or the reason there is none, as a sentence."""
        self.pending: dict[KeyT, PendingCall[Any, AnswerT]] = {}
        self._lost: set[KeyT] = set()
        """Keys about which there was no engine to be asked."""

    def ask(self, key: KeyT) -> None:
        """Look it up, whether or not there is an answer already."""
        if key in self.pending:
            return

        def done(answer: AnswerT | str) -> None:
            del self.pending[key]
            self.answers[key] = answer
            self.changed.emit(key)

        def failed(error: Error) -> None:
            if error.code == NOT_CONNECTED:
                self._lost.add(key)
            done(error.message)

        self._lost.discard(key)
        self.pending[key] = self._engine.call(self._operation, self._request(key), done, failed)

    def ask_again(self) -> None:
        """Look up what could not be asked, now that there is an engine."""
        for key in list(self._lost):
            self.ask(key)

    def stop(self) -> None:
        """Give up the questions under way."""
        for call in self.pending.values():
            call.cancel()
        self.pending.clear()
        self._lost.clear()

    def forget(self) -> None:
        """Give up the questions under way, and forget all answers."""
        self.stop()
        self.answers.clear()
