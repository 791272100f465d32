"""Stand-ins for the link where a part of the window calls operations: their real functions, or what a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from PySide6.QtCore import QObject, Qt, Signal

from app.link.calls import Calls
from engine import protocol as p
from engine.base import stopping
from engine.protocol import operations
from engine.protocol.base import Part
from engine.protocol.calls import Operation
from engine.services.failures import sentence_of
from engine.services.operations import encoded, perform


def end_of(call: p.Call, answer: object) -> p.Message:
    """The answer to a call, or its error where ``answer`` is an exception."""
    if isinstance(answer, Exception):
        return p.Error(code="failed", message=sentence_of(answer), id=call.id)
    return p.CallAnswer(id=call.id, answer=raw(answer))


def raw(record: object) -> Any:
    return msgspec.Raw(encoded(record))


class RealOperations(QObject):
    """Performs each call in a thread of this process, as the engine does."""

    _told = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._calls = Calls(self._take, self)
        self.call = self._calls.call
        self._stops: dict[str, stopping.Stop] = {}
        self._told.connect(self._calls.take, Qt.ConnectionType.QueuedConnection)

    def _take(self, message: p.Message) -> bool:
        if isinstance(message, p.Call):
            self._stops[message.id] = stop = stopping.Stop()
            threading.Thread(target=self._perform, args=(message, stop), daemon=True).start()
        elif isinstance(message, p.Cancel):
            self._stops[message.id].set()
        return True

    def _perform(self, call: p.Call, stop: stopping.Stop) -> None:
        operation = operations.OPERATIONS[call.operation]

        def tell(event: object) -> None:
            stop.check()
            self._told.emit(p.CallEvent(id=call.id, event=raw(event)))

        answer: object
        try:
            with stopping.stoppable(stop):
                answer = perform(operation, operation.read_request(call.request), tell)
        except Exception as error:
            answer = error
        with suppress(RuntimeError):  # the test is over
            self._told.emit(end_of(call, answer))


class ScriptedOperations(QObject):
    """Performs nothing: the test answers, or ``answers`` (functions of requests, by the names of operations)."""

    _told = Signal(object)

    def __init__(self, answers: Mapping[str, Callable[[Any], object]] = {}) -> None:
        super().__init__()
        self._answers = answers
        self._calls = Calls(self._take, self)
        self.call = self._calls.call
        self._told.connect(self._calls.take, Qt.ConnectionType.QueuedConnection)
        self.asked: list[p.Call] = []
        self.cancelled: set[str] = set()

    def _take(self, message: p.Message) -> bool:
        if isinstance(message, p.Call):
            self.asked.append(message)
            if (answer := self._answers.get(message.operation)) is not None:
                request = operations.OPERATIONS[message.operation].read_request(message.request)
                self._told.emit(end_of(message, answer(request)))
        elif isinstance(message, p.Cancel):
            self.cancelled.add(message.id)
        return True

    def of(self, operation: Operation[Any, Any, Any]) -> list[p.Call]:
        """The calls of an operation."""
        return [call for call in self.asked if call.operation == operation.name]

    def requests(self, operation: Operation[Any, Any, Any]) -> list[Part]:
        return [operation.read_request(call.request) for call in self.of(operation)]

    def answer(self, operation: Operation[Any, Any, Any], answer: object, call: p.Call | None = None) -> None:
        """End the last call of an operation, or this one, with an answer or an exception."""
        call = call or self.of(operation)[-1]
        self._calls.take(end_of(call, answer))

    def fail(self, operation: Operation[Any, Any, Any], error: p.Error) -> None:
        """End the last call of an operation with an error of this code."""
        self._calls.take(msgspec.structs.replace(error, id=self.of(operation)[-1].id))
