"""The engine that is served, driven alone by an experiment and put back as it was."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from typing import NamedTuple

from engine import catalogue
from engine.base import stopping
from engine.loading.model import LoadModel
from engine.loading.parts.adapter import adapters_of
from engine.loop.engine import Engine
from engine.protocol import Value, keys
from engine.services.client import EngineClient, EngineError
from engine.services.hub import EngineHub
from engine.services.residency import Residency

BESIDE = frozenset((keys.HOST_CACHE, keys.DISK_CACHE))
"""Switches that size what is kept of chats outside the arenas: less of it would drop chats, and no experiment asks."""


class ServedState(NamedTuple):
    """State of an engine: the loaded model (None: none), its adapters as (name, folder), and the switches by key."""

    model: LoadModel | None
    adapters: tuple[tuple[str, str], ...]
    switches: Mapping[str, Value]

    @staticmethod
    def of(engine: Engine) -> ServedState:
        """The present state, without what would keep the model in memory; for any thread."""
        loaded = engine.loaded
        return ServedState(
            loaded.command if loaded is not None else None,
            tuple((each.name, each.path) for each in adapters_of(loaded)),
            {spec.key: spec.value for spec in engine.catalogue_state() if spec.key not in BESIDE},
        )

    @staticmethod
    def fresh(model: LoadModel) -> ServedState:
        """State of a new engine that has loaded this model."""
        return ServedState(model, (), {key: value for key, value in catalogue.defaults().items() if key not in BESIDE})

    def take(self, client: EngineClient) -> bool:
        """Bring the engine into this state; True if the model was loaded for it. Raises :class:`EngineError`.

        Switches that take a load are set while none is loaded, so that there is one load at the most.
        """
        now = ServedState.of(client.engine)
        changed = [key for key, value in self.switches.items() if now.switches[key] != value]
        if now.model != self.model or any(catalogue.option(key).applies == "reload" for key in changed):
            client.unload()
        _set_all(client, {key: self.switches[key] for key in changed})
        anew = self.model is not None and client.engine.loaded is None
        if anew and self.model is not None:
            client.load(*self.model)
        client.settle()  # what came with the load is there, its adapters too
        there = {each.name for each in adapters_of(client.engine.loaded)}
        for name, folder in self.adapters:
            if name not in there:
                client.load_adapter(name, folder)
        return anew


def _set_all(client: EngineClient, values: Mapping[str, Value]) -> None:
    """Set switches whatever their order: some exclude each other on the way. Raises :class:`EngineError`."""
    left = dict(values)
    while left:
        refused: dict[str, EngineError] = {}
        for key, value in left.items():
            try:
                client.set(key, value)
            except EngineError as error:
                refused[key] = error
        if len(refused) == len(left):
            raise next(iter(refused.values()))
        left = {key: left[key] for key in refused}


@contextlib.contextmanager
def served_engine(hub: EngineHub, residency: Residency) -> Iterator[EngineClient]:
    """A context that drives the served engine alone, from a thread other than the event loop's.

    Answers under way end first, and what is asked meanwhile waits. However it ends, the engine is put back into the
    state that it had. Entering it raises Stopped; Refused if a model that was unloaded for being idle could not be
    loaded again. Leaving it raises :class:`EngineError` if that state cannot come back.
    """
    with _alone(hub, residency) as client:
        before = ServedState.of(client.engine)
        try:
            yield client
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # they may hold a model, whose memory is needed now
            raise
        finally:
            with client.uninterrupted():
                client.settle()
                before.take(client)
                client.settle()


@contextlib.contextmanager
def _alone(hub: EngineHub, residency: Residency) -> Iterator[EngineClient]:
    """A client of the served engine, which is nobody else's meanwhile."""
    told, over = threading.Event(), asyncio.Event()
    clients: list[EngineClient] = []
    stop = stopping.current()

    async def hold() -> None:
        try:
            async with residency.alone():
                with contextlib.closing(EngineClient(hub=hub, stop=stop)) as client:
                    clients.append(client)
                    told.set()
                    await over.wait()
        finally:
            told.set()

    holding = asyncio.run_coroutine_threadsafe(hold(), hub.loop)
    with stop.waking(holding.cancel):
        told.wait()
    if holding.cancelled():
        stop.check()
    if not clients:
        holding.result()
    try:
        yield clients[0]
    finally:
        with contextlib.suppress(RuntimeError, CancelledError):  # the server has ended, and its loop
            hub.loop.call_soon_threadsafe(over.set)
            holding.result()
