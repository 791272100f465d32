"""Calls of the engine's operations: each has events, and then one answer, one error, or was cancelled."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from PySide6.QtCore import QObject, QTimer

from app.language import tr
from engine import protocol
from engine.protocol.base import Part
from engine.protocol.calls import Operation

log = logging.getLogger(__name__)

RequestT = TypeVar("RequestT", bound=Part)
EventT = TypeVar("EventT")
AnswerT = TypeVar("AnswerT")

_OURS = "call-"
"""Beginning of the id of every call."""
WAIT_MS = 60_000
"""Milliseconds that a call waits for an engine that starts."""
NOT_CONNECTED = "not_connected"
"""Code of the error of a call for which there is no engine."""
NOT_RUNNING = tr("The engine is not running. Wait until it has started, then try again.")
STOPPED = tr("It was stopped before it began.")
GONE = tr("The engine stopped before it answered. Try again.")
TOO_LARGE = tr("That is more than the {limit} MiB that the engine takes at once.", limit=protocol.MAX_FRAME >> 20)


def _ignore(record: Any) -> None:
    """Listener for what nobody asked to hear."""


class PendingCall(Generic[EventT, AnswerT]):
    """A call until its end. Nothing is heard of it after :meth:`cancel`; after :meth:`stop` how it ended."""

    def __init__(
        self,
        operation: Operation[Any, EventT, AnswerT],
        message: protocol.Call,
        on_event: Callable[[EventT], object],
        on_answer: Callable[[AnswerT], object],
        on_error: Callable[[protocol.Error], object],
        stop: Callable[[PendingCall[Any, Any], bool], object],
    ) -> None:
        self.message = message
        self.sent = False
        self._operation, self._stop = operation, stop
        self._on_event, self._on_answer, self.fail = on_event, on_answer, on_error

    def cancel(self) -> None:
        """Have it stop, if it has not ended."""
        self._stop(self, False)

    def stop(self) -> None:
        """The same, but its end is heard: an answer that came first, or an error."""
        self._stop(self, True)

    def take(self, message: protocol.CallEvent) -> None:
        self._on_event(self._operation.read_event(message.event))

    def end(self, message: protocol.CallAnswer) -> None:
        self._on_answer(self._operation.read_answer(message.answer))


class Caller(Protocol):
    """Performer of operations: the link, and in tests whatever stands in for it."""

    def call(
        self,
        operation: Operation[RequestT, EventT, AnswerT],
        request: RequestT,
        on_answer: Callable[[AnswerT], object] = ...,
        on_error: Callable[[protocol.Error], object] = ...,
        on_event: Callable[[EventT], object] = ...,
    ) -> PendingCall[EventT, AnswerT]: ...


class Calls(QObject):
    """The calls of one link. ``send`` gives a message to the engine; False where there is no connection."""

    def __init__(self, send: Callable[[protocol.Message], bool], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._send = send
        self._pending: dict[str, PendingCall[Any, Any]] = {}
        self._numbers = itertools.count(1)
        self._dead = False
        self._patience = QTimer(self, singleShot=True, interval=WAIT_MS)
        self._patience.setObjectName("calls-wait")
        self._patience.timeout.connect(lambda: self._fail(False, NOT_RUNNING))

    def call(
        self,
        operation: Operation[RequestT, EventT, AnswerT],
        request: RequestT,
        on_answer: Callable[[AnswerT], object] = _ignore,
        on_error: Callable[[protocol.Error], object] = _ignore,
        on_event: Callable[[EventT], object] = _ignore,
    ) -> PendingCall[EventT, AnswerT]:
        """Perform an operation: now, or as soon as there is an engine. One of ``on_answer`` and ``on_error`` is called,
        never before this returns."""
        encoded = msgspec.Raw(msgspec.json.encode(request))
        message = protocol.Call(id=f"{_OURS}{next(self._numbers)}", operation=operation.name, request=encoded)
        call = PendingCall(operation, message, on_event, on_answer, on_error, self._cancel)
        self._pending[message.id] = call
        if len(encoded) > protocol.MAX_FRAME // 2:
            QTimer.singleShot(0, self, lambda: self._fail_one(message.id, "too_large", TOO_LARGE))
        else:
            self._transmit(call)
            if self._dead:
                QTimer.singleShot(0, self, lambda: self._fail_one(message.id, NOT_CONNECTED, NOT_RUNNING))
        return call

    def connected(self) -> None:
        """There is an engine: all that waits for one is sent."""
        self._dead = False
        self._patience.stop()
        for call in list(self._pending.values()):
            self._transmit(call)

    def lost(self, dead: bool) -> None:
        """There is no engine; ``dead``: and none will come by itself."""
        self._dead = dead
        self._fail(True, GONE)
        if dead:
            self._patience.stop()
            self._fail(False, NOT_RUNNING)

    def take(self, message: object) -> bool:
        """Hand on what is said about a call; False for any other message."""
        if isinstance(message, protocol.CallEvent | protocol.CallAnswer):
            self._hear(message)
            return True
        if isinstance(message, protocol.Error) and message.id.startswith(_OURS):
            if message.id in self._pending:  # else it was cancelled, and nobody waits for its end
                self._pending.pop(message.id).fail(message)
            return True
        return False

    def close(self) -> None:
        """Nothing is heard of any call any more."""
        self._patience.stop()
        self._pending.clear()

    def _hear(self, message: protocol.CallEvent | protocol.CallAnswer) -> None:
        call = self._pending.get(message.id)
        if call is None:  # it was cancelled
            return
        try:
            if isinstance(message, protocol.CallEvent):
                call.take(message)
            else:
                del self._pending[message.id]
                call.end(message)
        except msgspec.MsgspecError as error:
            log.warning("not understood of %s: %s", call.message.operation, error)
            if isinstance(message, protocol.CallAnswer):
                text = tr(
                    "The engine's answer to {operation} was not understood. Install Kvasir again.",
                    operation=call.message.operation,
                )
                call.fail(protocol.Error(code="malformed", message=text, id=message.id))

    def _transmit(self, call: PendingCall[Any, Any]) -> None:
        call.sent = call.sent or self._send(call.message)
        if not (call.sent or self._dead or self._patience.isActive()):
            self._patience.start()

    def _cancel(self, call: PendingCall[Any, Any], heard: bool) -> None:
        if call.message.id not in self._pending:
            return
        if call.sent:
            self._send(protocol.Cancel(id=call.message.id))
        if not heard:
            del self._pending[call.message.id]
        elif not call.sent:
            QTimer.singleShot(0, self, lambda: self._fail_one(call.message.id, "cancelled", STOPPED))

    def _fail(self, sent: bool, sentence: str) -> None:
        for id in [id for id, call in self._pending.items() if call.sent is sent]:
            self._fail_one(id, NOT_CONNECTED, sentence)

    def _fail_one(self, id: str, code: str, sentence: str) -> None:
        call = self._pending.pop(id, None)
        if call is not None:
            call.fail(protocol.Error(code=code, message=sentence, id=id))
