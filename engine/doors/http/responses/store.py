"""Responses that clients may ask for again, or go on from: the last ones, in memory, each for whoever asked for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from engine.doors.http.responses.items import REFERENCE, ItemIn
from engine.doors.http.responses.types import ResponseOut
from engine.services.answers.refused import Refused, shortened

MOST_RESPONSES = 4096
MOST_BYTES = 64 << 20
"""Of all stored responses together, as JSON, with their input."""


class Owner(NamedTuple):
    """Who asked for a response: the name of a key, and the websocket that it came by, "" for none."""

    name: str
    socket: str = ""

    def sees(self, kept: Owner) -> bool:
        """Return True for a response of its own that is stored, or of its websocket."""
        return kept in (self, Owner(self.name))


class Stored(NamedTuple):
    """A response as JSON, with the items of its request. ``owner`` asked for it, and has a ``socket`` where it is kept
    for that alone; it went on from ``previous``."""

    owner: Owner
    previous: str
    given: bytes
    response: bytes

    @property
    def size(self) -> int:
        return len(self.given) + len(self.response)

    @property
    def input(self) -> list[ItemIn]:
        return msgspec.json.decode(self.given, type=list[ItemIn])

    @property
    def items(self) -> list[ItemIn]:
        """Its input and its output."""
        return self.input + msgspec.json.decode(self.response, type=_Output).output


class _Output(msgspec.Struct):
    """The part of a response that a conversation goes on from."""

    output: list[ItemIn]


class ResponseStore:
    """Keeps the responses that were used last. One that another goes on from is used whenever that is, so that of a
    conversation that is used nothing goes before all others."""

    def __init__(self, most: int = MOST_RESPONSES, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._kept: OrderedDict[str, Stored] = OrderedDict()
        self._places: dict[str, str] = {}
        """The responses of items, by the items' names."""
        self._bytes = 0

    def keep(self, owner: Owner, given: Sequence[ItemIn], response: ResponseOut) -> None:
        """Store a response with the items of its request; one that is not to be stored, for its websocket if any."""
        if not (response.store or owner.socket):
            return
        if response.id in self._kept:  # as it was while it was written
            self._drop(response.id)
        encoded = msgspec.json.encode(response)
        kept_for = Owner(owner.name) if response.store else owner
        stored = Stored(kept_for, response.previous_response_id or "", msgspec.json.encode(given), encoded)
        self._kept[response.id] = stored
        self._bytes += stored.size
        self._places |= {item.id: response.id for item in stored.items if item.id}
        with suppress(Refused):  # what it went on from may have gone meanwhile
            self._line(owner, response.id)
        while len(self._kept) > self._most or self._bytes > self._most_bytes:
            self._drop(next(iter(self._kept)))

    def find(self, owner: Owner, id: str) -> Stored:
        """Raises :class:`Refused` for one that is not there, or is somebody else's."""
        if (found := self._kept.get(id)) is not None and owner.sees(found.owner):
            return found
        text = (
            f"Response with id {shortened(id)!r} not found. The last {self._most:,} are kept until the server stops, "
            "unless they are long or a request says store: false."
        )
        raise Refused("response_not_found", text)

    def conversation(self, owner: Owner, id: str) -> list[ItemIn]:
        """All items up to the end of that response. Raises :class:`Refused` where a part of it is not there."""
        try:
            line = self._line(owner, id)
        except Refused as refused:
            text = f"{refused} Send the whole conversation as input instead."
            raise Refused("previous_response_not_found", text) from refused
        return [item for stored in reversed(line) for item in stored.items]

    def input(self, owner: Owner, id: str) -> list[ItemIn]:
        """All items that the model of that response read. Raises :class:`Refused`."""
        stored = self.find(owner, id)
        before = self.conversation(owner, stored.previous) if stored.previous else []
        return before + stored.input

    def resolved(self, owner: Owner, items: Sequence[ItemIn]) -> list[ItemIn]:
        """The items, with those that are only referred to. Raises :class:`Refused`."""
        return [self._referred(owner, item.id or "") if item.kind == REFERENCE else item for item in items]

    def delete(self, owner: Owner, id: str) -> None:
        """Raises :class:`Refused`. What went on from it cannot be gone on from any more."""
        self.find(owner, id)
        self._drop(id)

    def forget(self, owner: Owner, id: str) -> None:
        """Drop a response that is kept for this websocket alone, because what went on from it failed."""
        if owner.socket and id in self._kept and self._kept[id].owner == owner:
            self._drop(id)

    def leave(self, socket: str) -> None:
        """Drop all that is kept for a websocket alone, which has ended."""
        for id in [id for id, stored in self._kept.items() if stored.owner.socket == socket]:
            self._drop(id)

    def _line(self, owner: Owner, id: str) -> list[Stored]:
        """The response, the one that it went on from, and so on; they are used now, the oldest of them first."""
        names: list[str] = []
        while id:
            names.append(id)
            id = self.find(owner, id).previous
        for name in reversed(names):
            self._kept.move_to_end(name)
        return [self._kept[name] for name in names]

    def _referred(self, owner: Owner, name: str) -> ItemIn:
        response = self._places.get(name, "")
        stored = self._kept.get(response)
        if stored is not None and owner.sees(stored.owner):
            return next(item for item in stored.items if item.id == name)
        text = f"There is no item {shortened(name)!r} in the responses that are kept. Send the item itself."
        raise Refused("item_not_found", text)

    def _drop(self, id: str) -> None:
        stored = self._kept.pop(id)
        self._bytes -= stored.size
        for item in stored.items:
            if item.id and self._places.get(item.id) == id:
                del self._places[item.id]
