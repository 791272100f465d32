"""The engine's thread on one side, the event loop on the other.

Commands go straight to the engine, whose queue is thread-safe. Events come back in bunches: the engine thread appends
to a deque and wakes the loop once per bunch, however many there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from engine.base.devices import traits
from engine.decoding.telemetry.histograms import AnswerHistograms
from engine.decoding.telemetry.records import StepRecord
from engine.decoding.telemetry.window import TelemetryWindow
from engine.loading.model import LoadModel, load_name
from engine.loop.commands import AddRequest, Command, FindKept, Inspect, MeasureText, Shutdown
from engine.loop.events import Embedded, Event, RequestEvent
from engine.protocol import (
    Adapters,
    Cancel,
    Delta,
    Error,
    Finished,
    LoadAdapter,
    Loaded,
    Options,
    Prefill,
    Set,
    Telemetry,
    Unload,
    UnloadAdapter,
    Unloaded,
)
from engine.services.measured import Measurements

if TYPE_CHECKING:
    from engine.compute.runner.perplexity import Scores
    from engine.loading.model import LoadedModel
    from engine.loop.cache_view import PagesSnapshot, PageView, TreeSnapshot
    from engine.loop.engine import Engine
    from engine.services.probes import MachineProbes

log = logging.getLogger(__name__)

MOST_IDS = 4096
"""Requests whose clients' names are remembered: pages outlive the requests that filled them."""
REST_SECONDS = 1.0
"""The pause between two looks at an engine that does nothing and whose last steps have left the figures."""

INSPECT_SECONDS = 10.0
"""How long a look into the cache may take: a step in progress is finished first."""
MEASURE_SECONDS = 600.0

_T = TypeVar("_T")
Emit = Callable[[Event], None]


@dataclass(slots=True)
class _Running:
    """A request in progress: who hears of it, and how many of its answers are still to end."""

    listener: Callable[[RequestEvent], None]
    left: int


@dataclass(slots=True)
class _Driver:
    """One caller that drives the engine alone for now: ``taker`` hears of its events."""

    taker: Callable[[Event], None]
    had_model: bool
    """True if a model was loaded when that began."""
    missed: dict[type[Event], Event] = field(default_factory=dict)
    """The last events of their kinds that listeners did not hear of meanwhile."""
    held: list[Command] = field(default_factory=list)
    """What others ordered meanwhile."""

    def miss(self, event: Event) -> None:
        """Keep what listeners must know in the end: what is loaded, with its adapters, and the switches."""
        if isinstance(event, Loaded | Unloaded):
            before = self.missed.get(Loaded)
            if isinstance(event, Loaded) and isinstance(before, Loaded):  # the model was loaded before its cache was
                event = msgspec.structs.replace(event, rebuilt=event.rebuilt and before.rebuilt)
            self.missed.clear()
        if isinstance(event, Loaded | Unloaded | Adapters | Options):
            self.missed[type(event)] = event


class EngineHub:
    """One engine for all sessions. Everything but ``_emit`` is called in the event loop's thread."""

    def __init__(self, make_engine: Callable[[Emit], Engine], probes: MachineProbes, died: Callable[[], None]) -> None:
        """``died`` is called in the loop when the engine's thread ended without being asked to."""
        self.measurements = Measurements(probes)
        self.engine = make_engine(self._emit)
        self.window = TelemetryWindow()
        self.histograms = AnswerHistograms()
        self.long_prompts = ThreadPoolExecutor(1, thread_name_prefix="long-prompts")
        """Where long prompts are tokenised, one after the other."""
        self._died = died
        self._loop: asyncio.AbstractEventLoop | None = None
        self.thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._events: deque[Event] = deque()
        self._woken = False
        self._stopping = False
        self._running: dict[str, _Running] = {}
        self._ids: OrderedDict[str, str] = OrderedDict()
        self._listeners: list[Callable[[Event], None]] = []
        self._watchers: list[Callable[[StepRecord], None]] = []
        self._driver: _Driver | None = None
        self._numbers = itertools.count(1)
        self._stirred = asyncio.Event()
        self.embedder_bytes: Callable[[], int] = lambda: 0
        """Bytes of a model next to the engine's, which computes embeddings."""

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.thread.start()

    async def stop(self) -> None:
        """End the engine's thread; a step in progress is finished first."""
        self._stopping = True
        self.probes.stop()
        self.long_prompts.shutdown(wait=False, cancel_futures=True)
        self.engine.cancel_load()
        self.engine.submit(Shutdown())
        await asyncio.to_thread(self.thread.join, 5.0)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, once it is started."""
        assert self._loop is not None
        return self._loop

    @property
    def probes(self) -> MachineProbes:
        return self.measurements.probes

    @property
    def bandwidth(self) -> float | None:
        """Bytes a second that the model's device reads; None until that is measured."""
        return self.measurements.bandwidth

    @property
    def loaded(self) -> LoadedModel | None:
        return self.engine.loaded

    @property
    def stepping(self) -> bool:
        """True while the engine's thread runs (after :meth:`stop`: a step or a load that does not end)."""
        return self.thread.is_alive()

    @property
    def answering(self) -> int:
        """Requests in progress."""
        return len(self._running)

    @property
    def driven(self) -> bool:
        """True while one caller drives the engine alone."""
        return self._driver is not None

    def answers_on_processor(self) -> bool:
        """True while answers are computed on the processor. For any thread."""
        loaded = self.loaded
        return bool(self._running) and loaded is not None and not traits(loaded.device).gpu

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Hear of everything that concerns no single request; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def watch(self, watcher: Callable[[StepRecord], None]) -> Callable[[], None]:
        """Hear of every step; returns what ends that."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def submit(self, command: Command) -> None:
        """Send a command to the engine; one that changes what it serves waits while somebody drives it alone."""
        changes = isinstance(command, Set | LoadModel | Unload | LoadAdapter | UnloadAdapter)
        if self._driver is not None and changes:
            self._driver.held.append(command)
        else:
            self.engine.submit(command)

    def cancel_load(self) -> None:
        """Stop the load in progress and those that wait, but for those of somebody who drives the engine alone."""
        driver = self._driver
        if driver is None:
            self.engine.cancel_load()
            return
        loads = [command for command in driver.held if isinstance(command, LoadModel)]
        driver.held = [command for command in driver.held if command not in loads]
        for load in loads:
            text = f"Loading {load_name(load.path)} was cancelled."
            self._dispatch(Error(code="load_cancelled", message=text))

    def divert(self, taker: Callable[[Event], None]) -> None:
        """Let one caller drive the engine alone: ``taker`` hears of every event, in the engine's thread, and others of
        the steps alone. Nothing may be in progress."""
        self._driver = _Driver(taker, self.loaded is not None)

    def resume(self) -> None:
        """End that: the others hear of what is loaded and set now, if that changed, and what they ordered is done."""
        driver, self._driver = self._driver, None
        if driver is None:
            return
        if not driver.had_model:
            driver.missed.pop(Unloaded, None)  # of what they did not know of
        for event in driver.missed.values():
            self._dispatch(event)
        for command in driver.held:
            self.engine.submit(command)

    def add(self, request: AddRequest, listener: Callable[[RequestEvent], None]) -> str:
        """Start a request, of which ``listener`` hears until it has ended; return the engine's name of it.

        The request's id is its client's own name of it, shown with its pages.
        """
        name = f"r{next(self._numbers)}"
        self._ids[name] = request.id
        if len(self._ids) > MOST_IDS:
            self._ids.popitem(last=False)
        self._running[name] = _Running(listener, request.n)
        if request.pooling is None:
            self.histograms.ask(request.n, request.sampling.max_tokens)
        self._stir()
        self.engine.submit(request._replace(id=name))
        return name

    def client_id(self, name: str) -> str:
        """Name that the client gave to the request that the engine knows as ``name``; "" for one of long ago."""
        return self._ids.get(name, "")

    def cancel(self, name: str) -> None:
        self.engine.submit(Cancel(id=name))

    async def frame(self, since: float = 0.0) -> Telemetry:
        """A telemetry frame as of now."""
        pages = self.engine.cache_pages()
        machine, new = await self.measurements.reading(self.loaded, pages)
        if new and machine.gpu is not None and machine.gpu.joules is not None:
            self.window.add_energy(machine.taken_at, machine.gpu.joules)
        now, memory = time.monotonic(), msgspec.structs.replace(machine.memory, embedder=self.embedder_bytes())
        frame = self.window.frame(now, memory, self.engine.cache_pages(), self.bandwidth, since, idle=not self._running)
        services = self.window.services(now, self.engine.service_targets())
        return msgspec.structs.replace(frame, cache=self.engine.cache_stats(), gpu=machine.gpu, services=services)

    async def pause(self, interval: float) -> None:
        """Sleep between two looks: ``interval`` seconds; at rest REST_SECONDS, or until something begins."""
        stirred = self._stirred
        await asyncio.sleep(interval)
        if not self._running and self.window.quiet(time.monotonic()):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REST_SECONDS - min(interval, REST_SECONDS)):
                    await stirred.wait()

    def _stir(self) -> None:
        """Wake whoever pauses."""
        stirred, self._stirred = self._stirred, asyncio.Event()
        stirred.set()

    async def inspect(
        self, kind: Literal["pages", "tree", "page"], page: int = 0
    ) -> PagesSnapshot | TreeSnapshot | PageView | None:
        """Look into the cache between two steps; None where there is nothing to see. Raises TimeoutError."""
        return await self._asked(partial(Inspect, kind, page=page), INSPECT_SECONDS)

    async def kept(self, token_ids: Sequence[int], chat: str, adapter: str) -> int:
        """Leading tokens of a prompt that need not be read. Raises TimeoutError."""
        return await self._asked(partial(FindKept, token_ids, chat, adapter), INSPECT_SECONDS)

    async def measure(self, token_ids: Sequence[int]) -> Scores | str:
        """Score a text, or say why not. Raises TimeoutError."""
        return await self._asked(partial(MeasureText, token_ids), MEASURE_SECONDS)

    async def caught_up(self, seconds: float | None = MEASURE_SECONDS) -> None:
        """Wait until the engine has obeyed every command so far, a reload included. Raises TimeoutError."""
        await self._asked(partial(Inspect, "page"), seconds)

    async def settled(self) -> None:
        """Wait until every command so far was obeyed and nothing of the machine is measured for the loaded model."""
        await self.caught_up(None)
        await self.measurements.settled()

    async def _asked(self, command: Callable[[Callable[[_T], None]], Command], seconds: float | None) -> _T:
        """Send a command to the engine thread and return its reply. Raises TimeoutError; a later reply is dropped."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_T] = loop.create_future()

        def settle(value: _T) -> None:
            if not answer.done():
                answer.set_result(value)

        def reply(value: _T) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, value)

        self.engine.submit(command(reply))
        async with asyncio.timeout(seconds):
            return await answer

    # --- the engine thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self.engine.run()
        except BaseException:
            log.exception("the engine's thread ended")
        if not self._stopping:
            self._call_in_loop(self._died)

    def _emit(self, event: Event) -> None:
        if (driver := self._driver) is not None:
            driver.taker(event)
            if not isinstance(event, StepRecord):
                driver.miss(event)
                return
        self._events.append(event)
        if not self._woken:
            self._woken = True
            self._call_in_loop(self._drain)

    def _call_in_loop(self, function: Callable[[], None]) -> None:
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(function)
        except RuntimeError:
            log.debug("the event loop is closed; an event is dropped")

    # --- the event loop ------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        self._woken = False  # before emptying: an event that comes meanwhile wakes the loop again
        while self._events:
            event = self._events.popleft()
            try:
                self._dispatch(event)
            except Exception:
                log.exception("an event was lost: %s", type(event).__name__)

    def _dispatch(self, event: Event) -> None:
        self._stir()
        match event:
            case StepRecord():
                self.window.add(event)
                if self._driver is None:
                    self.measurements.add(event)
                for watcher in self._watchers:
                    watcher(event)
            case Delta(id=name) | Prefill(id=name) | Embedded(id=name):
                if (running := self._running.get(name)) is not None:
                    running.listener(event)
            case Finished(id=name):
                self._ended(name, event)
            case Error(id=name) if name:
                self._ended(name, event)
            case _:
                self._note(event)
                for listener in list(self._listeners):
                    listener(event)

    def _note(self, event: Event) -> None:
        if isinstance(event, Loaded | Unloaded):
            self.window.model_changed()
            self.measurements.model_changed(self.loaded if isinstance(event, Loaded) else None)
            if not self._running:
                self.measurements.rest()

    def _ended(self, name: str, event: Finished | Error) -> None:
        running = self._running.get(name)
        if running is None:
            return
        if isinstance(event, Finished):
            self.histograms.add(event)
        running.left -= 1
        if running.left == 0 or isinstance(event, Error):
            del self._running[name]
            if not self._running:
                self.measurements.rest()
        running.listener(event)
