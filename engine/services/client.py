"""The engine driven from a plain thread: commands go in, and calls wait for the event that answers them."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from msgspec import structs

from engine.base import stopping
from engine.base.stopping import Stop, Stopped
from engine.cache.offload.saved import SavedChats
from engine.catalogue.replay import replayed
from engine.decoding.hand_over import BegunAnswer, HandOverRefused
from engine.decoding.telemetry.records import StepRecord
from engine.loading.model import LoadedModel, LoadModel
from engine.loop.commands import AddRequest, Command, HandOver, Inspect, Shutdown
from engine.loop.engine import Engine
from engine.loop.events import Embedded, Event
from engine.protocol import (
    FAILED,
    AdapterCard,
    Adapters,
    Cancel,
    Delta,
    Error,
    Finished,
    Fit,
    LoadAdapter,
    Loaded,
    Loading,
    LoadOptions,
    ModelCard,
    Options,
    OptionSpec,
    Sampling,
    Set,
    Timings,
    Unload,
    Unloaded,
    Usage,
    Value,
    keys,
)
from engine.services.answers.request import AnswerRequest, PromptTokens

if TYPE_CHECKING:
    from engine.config.pooling import Pooling
    from engine.services.hub import EngineHub
    from engine.text.grammar import Grammar

_T = TypeVar("_T")
ALIVE_SECONDS = 0.2
"""How often a wait looks whether the engine is still there; short turns let Ctrl-C through on every platform."""
CLOSE_SECONDS = 5.0
"""How long a person who leaves waits for the engine's end."""
SETTLED_SECONDS = 60.0
"""How long a step may go on whose answers were cancelled."""


class EngineError(RuntimeError):
    """Raised for a command that the engine refused or could not do, with its own sentence."""


class Answer(NamedTuple):
    """One finished answer. ``steps`` are the records of the steps it took part in, in order."""

    ids: list[int]
    timings: Timings
    steps: list[StepRecord]
    gaps: list[float]
    """Seconds between the arrivals of its tokens, the first excluded."""
    usage: Usage
    submitted: float
    """When the engine got its prompt, by time.perf_counter()."""


class Arrival(NamedTuple):
    """A prompt that arrives after these seconds. ``service``: its class, "" for the usual one."""

    seconds: float
    prompt_ids: Sequence[int]
    sampling: Sampling
    service: str = ""


class EngineClient:
    """An engine in a thread of its own, or the one that is served. Not thread-safe: one caller at a time.

    But in :meth:`stream` every prompt is read from its first token, unless its ``optimisations`` say otherwise.
    """

    def __init__(
        self,
        saved: SavedChats | None = None,
        device: str = "auto",
        make_engine: Callable[..., Engine] = Engine,
        hub: EngineHub | None = None,
        stop: Stop | None = None,
    ) -> None:
        """``saved`` keeps chats in files, where that is switched on. ``hub``: its engine is driven, whose events come
        here until :meth:`close`; both are called in its event loop.

        Whatever it waits for raises :class:`Stopped` once ``stop`` is set: that of the present work if left out.
        """
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._stop = stop or stopping.current()
        self._uninterrupted = 0
        self._hub = hub
        if hub is not None:
            self.engine, self._thread = hub.engine, hub.thread
            hub.divert(self._events.put)
            return
        self.engine = make_engine(self._events.put, device, saved=saved)
        self._thread = threading.Thread(target=self.engine.run, name="engine", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """A context that puts back what was changed, whether the work is to stop or not."""
        self._uninterrupted += 1
        try:
            yield
        finally:
            self._uninterrupted -= 1

    @property
    def model(self) -> LoadedModel:
        """The loaded model. Raises :class:`EngineError` where there is none."""
        if self.engine.loaded is None:
            raise EngineError("No model is loaded. Load one first.")
        return self.engine.loaded

    def state(self) -> dict[str, OptionSpec]:
        """Every switch by its key, as it is set now."""
        return {spec.key: spec for spec in self.engine.catalogue_state()}

    def load(
        self,
        path: str,
        draft: str = "",
        options: LoadOptions = LoadOptions(),
        progress: Callable[[str, float], None] = lambda stage, fraction: None,
    ) -> tuple[ModelCard, Fit]:
        """Load a model and wait for it. Raises :class:`EngineError`."""

        def loaded(event: Event) -> Loaded | None:
            if isinstance(event, Loading):
                progress(event.stage, event.fraction)
            return event if isinstance(event, Loaded) else None

        event = self._obeyed(LoadModel(path, draft, options), loaded)
        return event.card, event.fit

    def unload(self) -> None:
        """Unload the model, if one is loaded, and wait for it."""
        if self.engine.loaded is not None:
            self._obeyed(Unload(), lambda event: event if isinstance(event, Unloaded) else None)

    def load_adapter(self, name: str, folder: str) -> AdapterCard:
        """Load a LoRA adapter and wait for it. Raises :class:`EngineError`."""
        return self._obeyed(
            LoadAdapter(name=name, path=folder),
            lambda event: event.adapters[-1] if isinstance(event, Adapters) and event.adapters else None,
        )

    def set(self, key: str, value: Value) -> None:
        """Set a switch and wait until it holds (a reload included). Raises :class:`EngineError`."""
        if self.state()[key].value == value:
            return

        def holds(event: Event) -> bool | None:
            there = isinstance(event, Options) and any(s.key == key and s.value == value for s in event.catalogue)
            return there or None

        self._obeyed(Set(key=key, value=value), holds)

    def _obeyed(self, command: Command, answer: Callable[[Event], _T | None]) -> _T:
        """Submit a command and return what ``answer`` makes of the first event that is one. Raises EngineError."""
        self.engine.submit(command)
        try:
            while True:
                event = self._next()
                if event is not None and (found := answer(event)) is not None:
                    return found
        except Stopped:
            self.engine.cancel_load()
            self.settle()
            raise

    def empty_cache(self) -> None:
        """Forget every page, by making the arenas anew; models that know one kind of arenas alone are loaded anew."""
        state = self.state()
        kind = state[keys.KV_KIND].value
        other = "16bit" if kind != "16bit" else "int8"
        if other not in state[keys.KV_KIND].disabled_choices and self.model.opened is not None:
            self.set(keys.KV_KIND, other)
            self.set(keys.KV_KIND, kind)
        else:
            self.load(*self.model.command)

    def answer(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        optimisations: Mapping[str, Value] | None = None,
        chat: str = "",
        grammar: Grammar | None = None,
    ) -> Answer:
        """One answer from arrival to end. Raises :class:`EngineError` when the engine refuses it."""
        request = _request("bench", prompt_ids, sampling, optimisations)
        return self._run([request._replace(chat=chat, grammar=grammar)])[0]

    def begin(
        self, prompt_ids: Sequence[int], sampling: Sampling, optimisations: Mapping[str, Value] | None = None
    ) -> tuple[Answer, bytes]:
        """One answer of ``max_tokens`` tokens, and what :meth:`go_on` of another engine's client takes to write more of
        it; b"" where it came to its own end. Raises :class:`EngineError` when the engine refuses it."""
        handed: list[BegunAnswer] = []
        request = _request("begun", prompt_ids, sampling, optimisations)._replace(hand_over=HandOver(handed.append))
        answer = self._run([request])[0]
        return answer, handed[0].to_bytes() if handed else b""

    def go_on(
        self,
        begun: bytes,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        optimisations: Mapping[str, Value] | None = None,
    ) -> Answer:
        """The whole of an answer that another engine began. Raises :class:`EngineError` when it cannot go on here."""
        try:
            taken = BegunAnswer.from_bytes(begun)
        except HandOverRefused as refused:
            raise EngineError(str(refused)) from None
        return self._run(
            [_request("begun", prompt_ids, sampling, optimisations)._replace(hand_over=HandOver(begun=taken))]
        )[0]

    def embed(self, prompts: Sequence[Sequence[int]], pooling: Pooling) -> list[np.ndarray]:
        """The embeddings of prompts, float32 of any length. Raises :class:`EngineError` when the engine refuses one."""
        names = [f"embed {number}" for number in range(len(prompts))]
        asked, found = AnswerRequest([], Sampling(max_tokens=1), pooling=pooling), dict[str, np.ndarray]()
        try:
            for name, ids in zip(names, prompts, strict=True):
                self.engine.submit(asked.command(PromptTokens(list(ids)), id=name))
            ended = 0
            while ended < len(names):
                event = self._next()
                if isinstance(event, Embedded):
                    found[event.id] = event.vector
                elif isinstance(event, Finished):
                    ended += 1
                    if event.reason in FAILED:
                        raise EngineError(event.detail or event.reason)
        except (EngineError, Stopped):
            self._abandon(names)
            raise
        return [found[name] for name in names]

    def stream(self, asked: AnswerRequest, tokens: PromptTokens) -> Iterator[Delta | Finished]:
        """The events of one answer up to its end, with what the cache holds; closed earlier, the iterator cancels it.
        Raises :class:`EngineError` when the engine refuses it."""
        name = f"stream {next(self._numbers)}"
        self.engine.submit(asked.command(tokens, id=name))
        ended = False
        try:
            while not ended:
                event = self._next()
                if isinstance(event, Delta | Finished) and event.id == name:
                    ended = isinstance(event, Finished)
                    yield event
        except EngineError:
            ended = True
            raise
        finally:
            if not ended:
                self._abandon([name])

    def together(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, optimisations: Mapping[str, Value] | None = None
    ) -> list[Answer]:
        """Answer all prompts at once, to their ends. Each answer's ``steps`` are those of all of them."""
        return self.arriving([Arrival(0.0, prompt, sampling) for prompt in prompts], optimisations)

    def arriving(
        self, arrivals: Sequence[Arrival], optimisations: Mapping[str, Value] | None = None, slots: int = 0
    ) -> list[Answer]:
        """Answer prompts that arrive one by one, in this order, to their ends; :meth:`together` otherwise.

        The engine gets no more than ``slots`` of them at a time, 0 for any number.
        """
        requests = [
            _request(f"bench {number}", prompt, sampling, optimisations)._replace(service=service)
            for number, (_, prompt, sampling, service) in enumerate(arrivals)
        ]
        return self._run(requests, at=[arrival.seconds for arrival in arrivals], slots=slots)

    def crowd(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, optimisations: Mapping[str, Value] | None = None
    ) -> int:
        """How many of these answers run together where no more find room; then all are cancelled."""
        requests = [_request(f"crowd {n}", prompt, sampling, optimisations) for n, prompt in enumerate(prompts)]
        most = 0
        try:
            for request in requests:
                self.engine.submit(request)
            while not isinstance(event := self._next(), StepRecord) or event.rows.prefill or event.queue.running > most:
                if isinstance(event, StepRecord):
                    most = max(most, event.queue.running)
        finally:
            self._abandon([request.id for request in requests])
        return most

    def interrupted(
        self,
        running: Sequence[Sequence[int]],
        arriving: Sequence[int],
        sampling: Sampling,
        after_tokens: int = 8,
        optimisations: Mapping[str, Value] | None = None,
        service: str = "",
    ) -> list[Answer]:
        """The answers to ``running`` of a service class, and last that to a prompt which arrives once each of
        them has ``after_tokens`` tokens: that one has as many at the most."""
        first = [
            _request(f"running {number}", prompt, sampling, optimisations)._replace(service=service)
            for number, prompt in enumerate(running)
        ]
        short = structs.replace(sampling, max_tokens=after_tokens)
        return self._run(first, [_request("arriving", arriving, short, optimisations)], after_tokens)

    def _run(
        self,
        requests: Sequence[AddRequest],
        later: Sequence[AddRequest] = (),
        after_tokens: int = 0,
        at: Sequence[float] = (),
        slots: int = 0,
    ) -> list[Answer]:
        """All answers, once all have ended. ``later`` is submitted once all others have ``after_tokens``.

        ``at``: how many seconds from now each of ``requests`` is submitted, in order; all now if left out.
        """
        try:
            return self._collect(requests, later, after_tokens, at, slots)
        except (EngineError, Stopped):
            self._abandon([request.id for request in (*requests, *later)])
            raise

    def _abandon(self, names: Sequence[str]) -> None:
        """Cancel the other requests after one failed, and drop their remaining events: the next call must see none."""
        for name in names:
            self.engine.submit(Cancel(id=name))
        self.settle()

    def settle(self) -> None:
        """Wait until the engine has obeyed every command so far, and forget what it told of them."""
        seen = threading.Event()
        self.engine.submit(Inspect("page", lambda _: seen.set()))  # answered after all that they still bring about
        until = time.monotonic() + SETTLED_SECONDS
        while self._thread.is_alive() and not seen.wait(ALIVE_SECONDS) and time.monotonic() < until:
            pass
        with contextlib.suppress(queue.Empty):
            while True:
                self._events.get_nowait()

    def _collect(
        self,
        requests: Sequence[AddRequest],
        later: Sequence[AddRequest],
        after_tokens: int,
        at: Sequence[float],
        slots: int,
    ) -> list[Answer]:
        names = [request.id for request in (*requests, *later)]
        ids: dict[str, list[int]] = {name: [] for name in names}
        arrivals: dict[str, list[float]] = {name: [] for name in names}
        finished: dict[str, Finished] = {}
        steps: list[StepRecord] = []
        submitted: dict[str, float] = {}

        def submit(request: AddRequest) -> None:
            submitted[request.id] = time.perf_counter()
            self.engine.submit(request)

        began = time.perf_counter()
        due = deque(zip(at or [0.0] * len(requests), requests, strict=True))
        while len(finished) < len(names):
            room = not slots or len(submitted) - len(finished) < slots
            wait = began + due[0][0] - time.perf_counter() if due and room else None
            if wait is not None and wait <= 0.0:
                submit(due.popleft()[1])
                continue
            event = self._next(wait)
            if isinstance(event, Delta):
                ids[event.id].extend(token.id for token in event.tokens)
                arrivals[event.id].append(time.perf_counter())
                if later and all(len(ids[request.id]) >= after_tokens for request in requests):
                    for request in later:
                        submit(request)
                    later = ()
            elif isinstance(event, StepRecord):
                steps.append(event)
            elif isinstance(event, Finished):
                finished[event.id] = event
                if event.reason in FAILED:
                    raise EngineError(event.detail or event.reason)
        while not isinstance(event := self._next(), StepRecord):
            pass
        steps.append(event)  # the record of the step in which the last answer ended comes after its end
        gaps = {name: [after - before for before, after in itertools.pairwise(arrivals[name])] for name in names}
        return [
            Answer(ids[name], finished[name].timings, steps, gaps[name], finished[name].usage, submitted[name])
            for name in names
        ]

    def close(self, seconds: float | None = None) -> None:
        """End the engine and wait for it, no longer than ``seconds``; one that is served goes on for all others."""
        if self._hub is not None:
            self._hub.resume()
            return
        self.engine.cancel_load()
        self.engine.submit(Shutdown())
        self._thread.join(seconds)

    def __enter__(self) -> EngineClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self, seconds: float | None = None) -> Event | None:
        """The next event; None where none comes in these seconds. Raises :class:`EngineError` if the engine ended."""
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            if not self._uninterrupted:
                self._stop.check()
            left = ALIVE_SECONDS if until is None else min(ALIVE_SECONDS, until - time.monotonic())
            try:
                event = self._events.get(timeout=max(0.0, left))
                break
            except queue.Empty:
                if until is not None and time.monotonic() >= until:
                    return None
                if not self._thread.is_alive():
                    raise EngineError("The engine stopped. Start kvasir again.") from None
        if isinstance(event, Error):
            raise EngineError(event.message)
        return event


def _request(
    name: str, prompt_ids: Sequence[int], sampling: Sampling, optimisations: Mapping[str, Value] | None = None
) -> AddRequest:
    asked = AnswerRequest([], sampling, optimisations={**replayed(), **(optimisations or {})})
    return asked.command(PromptTokens(list(prompt_ids)), id=name)


def whole_steps(steps: Sequence[StepRecord], batch: int) -> list[StepRecord]:
    """The steps that did nothing but write one token for each of ``batch`` answers."""
    return [step for step in steps if step.rows.prefill == 0 and step.rows.decode == step.generated == batch]
