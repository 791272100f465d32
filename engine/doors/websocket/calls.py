"""Operations that a client calls: its request in, events and one end out."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from engine.base.stopping import Stop, Stopped
from engine.doors.websocket.frames import UNREADABLE
from engine.protocol import Call, CallAnswer, CallEvent, Error
from engine.protocol.base import Part
from engine.protocol.calls import Operation
from engine.protocol.operations import OPERATIONS
from engine.services.answers.outbox import MAX_WAITING, Outbox
from engine.services.answers.refused import Refused, shortened
from engine.services.failures import sentence_of
from engine.services.operations import Context, code_of, encoded, in_thread, perform

log = logging.getLogger(__name__)

LEAVE_SECONDS = 1.0
"""How long the end of a connection waits for an operation that was told to stop, so that it can clear up."""
ROOM_SECONDS = 0.05


def understood(call: Call) -> tuple[Operation[Any, Any, Any], Part]:
    """The operation that is called, and its request. Raises :class:`Refused`."""
    operation = OPERATIONS.get(call.operation)
    if operation is None or operation.where != "engine":
        text = (
            f"There is no operation {shortened(call.operation)!r} here. Update the older of the window and the engine."
        )
        raise Refused("unknown_operation", text)
    try:
        return operation, operation.read_request(call.request)
    except UNREADABLE as error:
        text = f"A request of {call.operation} was not understood ({error}). Correct that field."
        raise Refused("malformed", text) from None


async def answered(call: Call, context: Context, outbox: Outbox, stop: Stop) -> None:
    """Perform the operation; events and its end go to the client. Raises :class:`Refused`."""
    operation, request = understood(call)
    loop = asyncio.get_running_loop()

    def emit(event: object) -> None:
        while len(outbox) >= MAX_WAITING:  # a client that reads slowly holds up the operation and fills no memory
            stop.wait(ROOM_SECONDS)
            stop.check()
        stop.check()
        loop.call_soon_threadsafe(outbox.put, CallEvent(id=call.id, event=_raw(event)))

    def work() -> msgspec.Raw:
        return _raw(perform(operation, request, emit, context))

    working = asyncio.ensure_future(in_thread(work, stop))
    try:
        answer = await asyncio.shield(working)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([working], timeout=LEAVE_SECONDS)
        raise
    except Stopped as stopped:
        outbox.put(Error(code="cancelled", message=str(stopped), id=call.id))
    except Exception as error:
        if not type(error).__module__.startswith("engine."):
            log.warning("the operation %s failed", call.operation, exc_info=error)
        outbox.put(Error(code=code_of(error), message=sentence_of(error), id=call.id))
    else:
        outbox.put(CallAnswer(id=call.id, answer=answer))


def _raw(record: object) -> msgspec.Raw:
    return msgspec.Raw(encoded(record))
