"""An engine in this process, for the terminal: a thread for the engine, plain calls for the caller."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Mapping

from engine.doors.cli.errors import CommandFailed
from engine.loading.model import LoadedModel, LoadModel
from engine.loop.commands import AddRequest, Shutdown
from engine.loop.engine import Engine
from engine.loop.events import Event
from engine.protocol import (
    AdapterCard,
    Adapters,
    Cancel,
    ChatMessage,
    Delta,
    Error,
    Finished,
    LoadAdapter,
    Loaded,
    Loading,
    LoadOptions,
    ModelCard,
    Options,
    OptionSpec,
    Sampling,
    Set,
    Thinking,
    Value,
)
from engine.text.prompt import prompt_ids

AnswerEvent = Delta | Finished
WAIT_SECONDS = 0.2
"""Waiting in short turns lets Ctrl-C through on every platform."""


class LocalEngine:
    """One caller at a time. Errors are :class:`CommandFailed`, whose message is the engine's sentence."""

    def __init__(self, device: str = "auto", make_engine: Callable[..., Engine] = Engine) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._engine = make_engine(self._events.put, device)
        self._thread = threading.Thread(target=self._engine.run, name="engine", daemon=True)
        self._names = (f"answer-{number}" for number in itertools.count(1))
        self._thread.start()

    def close(self) -> None:
        self._engine.cancel_load()
        self._engine.submit(Shutdown())
        self._thread.join(5.0)

    def load(
        self, path: str, draft: str, progress: Callable[[str, float], None], options: LoadOptions = LoadOptions()
    ) -> ModelCard:
        """Load a model and wait for it."""
        self._engine.submit(LoadModel(path, draft, options))
        while True:
            match self._next():
                case Loading(stage=stage, fraction=fraction):
                    progress(stage, fraction)
                case Loaded(card=card):
                    return card
                case Error(message=message):
                    raise CommandFailed(message)

    def load_adapter(self, name: str, folder: str) -> AdapterCard:
        """Load a LoRA adapter and wait for it."""
        self._engine.submit(LoadAdapter(name=name, path=folder))
        while True:
            match self._next():
                case Adapters(adapters=[*_, card]):
                    return card
                case Error(message=message):
                    raise CommandFailed(message)

    def options(self) -> list[OptionSpec]:
        return self._engine.catalogue_state()

    def set(self, key: str, value: Value) -> None:
        """Set an engine-wide switch and wait until it holds (a reload included)."""
        if any(spec.key == key and spec.value == value for spec in self.options()):
            return
        self._engine.submit(Set(key=key, value=value))
        while True:
            match self._next():
                case Options(catalogue=specs) if any(s.key == key and s.value == value for s in specs):
                    return
                case Error(message=message):
                    raise CommandFailed(message)

    def answer(
        self,
        prompt: list[ChatMessage] | str,
        sampling: Sampling,
        optimisations: Mapping[str, Value] | None = None,
        thinking: Thinking = Thinking(),
        adapter: str = "",
    ) -> Iterator[AnswerEvent]:
        """The events of one answer up to its end. Ctrl-C in the caller: close the iterator, which cancels."""
        loaded = self.loaded
        assert loaded.tokenizer is not None
        assert loaded.chat_template is not None
        ids = prompt_ids(loaded.tokenizer, loaded.chat_template, prompt, thinking)
        name = next(self._names)
        command = AddRequest(name, ids, sampling, 1, optimisations or {}, isinstance(prompt, str), adapter=adapter)
        self._engine.submit(command)
        return self._follow(name)

    @property
    def loaded(self) -> LoadedModel:
        loaded = self._engine.loaded
        if loaded is None:
            raise CommandFailed("No model is loaded. Load one first.")
        return loaded

    def _follow(self, name: str) -> Iterator[AnswerEvent]:
        ended = False
        try:
            while not ended:
                event = self._next()
                if getattr(event, "id", None) != name:
                    continue
                match event:
                    case Delta():
                        yield event
                    case Finished():
                        ended = True
                        yield event
                    case Error(message=message):
                        ended = True
                        raise CommandFailed(message)
        finally:
            if not ended:
                self._cancel(name)

    def _cancel(self, name: str) -> None:
        """Cancel and wait for the end, so that the next answer finds an idle engine."""
        self._engine.submit(Cancel(id=name))
        while True:
            event = self._next()
            if isinstance(event, Finished | Error) and event.id == name:
                return

    def _next(self) -> Event:
        while True:
            try:
                return self._events.get(timeout=WAIT_SECONDS)
            except queue.Empty:
                if not self._thread.is_alive():
                    raise CommandFailed("The engine stopped. Start kvasir again.") from None
