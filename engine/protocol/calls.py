"""A row of the table of operations, and the messages by which one is called over the websocket."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

import msgspec

from engine.protocol.base import Message, Part

RequestT = TypeVar("RequestT", bound=Part | Message)
EventT = TypeVar("EventT")
AnswerT = TypeVar("AnswerT")


class NoEvent(Part, frozen=True):
    """Event of operations that report nothing before their answer."""


@dataclass(frozen=True)
class Operation(Generic[RequestT, EventT, AnswerT]):
    """``request``, ``event`` and ``answer``: types of its records, as msgspec decodes them.

    ``where``: "engine" is the serving process, in a thread of its own; "child" a process that outlives it. ``hub``: it
    asks a hub, so that a GPU pack has the program do it.
    """

    name: str
    request: type[RequestT]
    answer: type[AnswerT]
    event: type[EventT]
    where: Literal["engine", "child"] = "engine"
    hub: bool = False

    @cached_property
    def _decoders(self) -> tuple[msgspec.json.Decoder[Any], ...]:
        return tuple(msgspec.json.Decoder(each) for each in (self.request, self.event, self.answer))

    def read_request(self, encoded: bytes | msgspec.Raw) -> RequestT:
        """Raises msgspec.MsgspecError."""
        request: RequestT = self._decoders[0].decode(encoded)
        return request

    def read_event(self, encoded: bytes | msgspec.Raw) -> EventT:
        """Raises msgspec.MsgspecError."""
        event: EventT = self._decoders[1].decode(encoded)
        return event

    def read_answer(self, encoded: bytes | msgspec.Raw) -> AnswerT:
        """Raises msgspec.MsgspecError."""
        answer: AnswerT = self._decoders[2].decode(encoded)
        return answer


class Call(Message, tag="call", frozen=True):
    """Perform an operation -> :class:`CallEvent`, as many as it reports, then one :class:`CallAnswer` or Error.

    Cancel stops it; its end is told all the same.
    """

    id: str
    operation: str
    request: msgspec.Raw


class CallEvent(Message, tag="call_event", frozen=True):
    id: str
    event: msgspec.Raw


class CallAnswer(Message, tag="call_answer", frozen=True):
    id: str
    answer: msgspec.Raw
