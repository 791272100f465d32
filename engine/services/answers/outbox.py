"""Queue of messages to one client: bounded, whatever the client's speed, and no text is ever lost.

A message that only says how things stand replaces an older one that still waits; deltas of one answer and channel are
joined. So what waits is bounded by the answers in progress, plus replies to the client's own messages, for which
:meth:`Outbox.room` makes the reader of those messages wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import get_args

import msgspec

from engine.protocol import (
    Channel,
    CompareProgress,
    Delta,
    Error,
    Finished,
    Loaded,
    Loading,
    Message,
    Options,
    PageMap,
    Prefill,
    RadixTree,
    Telemetry,
)

MAX_WAITING = 256


class _QueuedMessage:
    """A message that waits; deltas are kept apart until they are sent, so that joining costs nothing."""

    __slots__ = ("key", "messages")

    def __init__(self, key: Hashable | None, message: Message) -> None:
        self.key = key
        self.messages = [message]

    def add(self, message: Message) -> None:
        before = self.messages[-1]
        if isinstance(message, Delta):
            self.messages.append(message)
        elif isinstance(message, Telemetry) and isinstance(before, Telemetry):
            self.messages[-1] = msgspec.structs.replace(message, preemptions=before.preemptions + message.preemptions)
        else:
            self.messages[-1] = message

    def joined(self) -> Message:
        last = self.messages[-1]
        if len(self.messages) == 1 or not isinstance(last, Delta):
            return last
        return Delta.joined([message for message in self.messages if isinstance(message, Delta)])


class Outbox:
    """Used by one event loop: anybody puts, one task takes."""

    def __init__(self) -> None:
        self._waiting: deque[_QueuedMessage] = deque()
        self._joinable: dict[Hashable, _QueuedMessage] = {}
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: Message) -> None:
        """Queue a message, joined with one that waits where that loses nothing."""
        key = _key(message)
        waiting = self._joinable.get(key) if key is not None else None
        if waiting is not None:
            waiting.add(message)
        else:
            entry = _QueuedMessage(key, message)
            self._waiting.append(entry)
            if key is not None:
                self._joinable[key] = entry
        self._seal(message)
        self._arrived.set()
        if len(self._waiting) >= MAX_WAITING:
            self._room.clear()

    async def take(self) -> Message:
        """The oldest message; waits for one."""
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        entry = self._waiting.popleft()
        if entry.key is not None and self._joinable.get(entry.key) is entry:
            del self._joinable[entry.key]
        if len(self._waiting) < MAX_WAITING:
            self._room.set()
        return entry.joined()

    async def room(self) -> None:
        """Wait while the client reads too slowly for more replies."""
        await self._room.wait()

    def _seal(self, message: Message) -> None:
        """Join nothing more with messages from before an end: the same name can be used again after it."""
        match message:
            case Finished(id=id, answer=answer):
                for channel in get_args(Channel):
                    self._joinable.pop(("delta", id, answer, channel), None)
                self._joinable.pop(("prefill", id), None)
            case Loaded() | Error():
                self._joinable.pop(("loading",), None)
                self._joinable.pop((Options,), None)


def _key(message: Message) -> Hashable | None:
    """Messages with equal keys may be joined; None: never."""
    match message:
        case Delta(id=id, answer=answer, channel=channel):
            return ("delta", id, answer, channel)
        case Prefill(id=id):
            return ("prefill", id)
        case CompareProgress(id=id):
            return ("compare", id)
        case Loading():
            return ("loading",)
        case Telemetry() | Options() | PageMap() | RadixTree():
            return (type(message),)
    return None
