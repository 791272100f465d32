"""Subscriptions of one client, sent without further requests: telemetry, the map of pages and the prefix tree."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from engine.doors.websocket.cache_messages import CacheMessages
from engine.protocol import Message, Subscribe
from engine.services.hub import EngineHub

MAX_RATE = 10.0


class Subscriptions:
    """The tasks that send; a new list of topics takes the place of the one before."""

    def __init__(self, hub: EngineHub, cache: CacheMessages, put: Callable[[Message], None]) -> None:
        self._hub, self._cache, self._put = hub, cache, put
        self._tasks: list[asyncio.Task[None]] = []

    def change(self, message: Subscribe) -> None:
        for task in self._tasks:
            task.cancel()
        rate = min(MAX_RATE, max(0.1, message.rate)) if message.rate == message.rate else MAX_RATE
        works: list[Coroutine[Any, Any, None]] = []
        if "telemetry" in message.topics:
            works.append(self._measure(1.0 / rate))
        if {"pages", "tree"} & set(message.topics):
            works.append(self._cache.watch(message.topics, 1.0 / rate))
        self._tasks = [asyncio.create_task(work) for work in works]

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _measure(self, interval: float) -> None:
        since = time.monotonic()
        due = since
        while True:
            self._put(await self._hub.frame(since))
            since = time.monotonic()
            due = max(due + interval, since)
            await self._hub.pause(due - since)
