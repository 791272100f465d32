"""`python -m tests.bench soak`: random use of the engine for minutes, and whether anything grows or is lost.

Chats go on, branch and are deleted; answers are cancelled, several at a time, with every switch and kind of KV cache in
turn, in a cache too small for all of them. What is drawn follows from the seed; when it happens, from the machine.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import psutil

from engine.decoding.telemetry.records import StepRecord
from engine.loading.model import LoadedModel, LoadModel
from engine.loop.commands import Command, Inspect, Shutdown
from engine.loop.engine import Engine
from engine.loop.events import Event
from engine.protocol import (
    Cancel,
    Delta,
    Error,
    Finished,
    ForgetChat,
    LoadOptions,
    OptionSpec,
    Sampling,
    Set,
    Value,
    keys,
)
from engine.services.answers.request import AnswerRequest, PromptTokens
from engine.services.client import EngineError
from engine.services.experiments.reports.tables import MB, say
from engine.services.experiments.workloads.traces import TIGHT_ROOM
from tests.bench.soak_figures import SoakFigures, SoakSample

MOST_RUNNING = 6
MOST_CHATS = 12
CONTEXT = 1024
HOST_GB = 0.02
"""Size of the cache in RAM: small, so that it is full long before the measuring begins."""
LOADS = 24
"""How often the model is loaded again, whatever runs, and memory measured; fewer where a soak is short."""
LEAST_BETWEEN_S = 5.0
"""The least time between two of these loads."""
PATIENCE_S = 120.0
"""Without any event for this long, whatever is waited for is taken as lost."""
_LEFT_ALONE = (keys.HOST_CACHE, keys.DISK_CACHE, keys.KV_CACHE, keys.BATCH_INVARIANT)
"""Switches that a soak leaves alone: the first two bound what memory holds; the others are so slow that little else
would be done."""
_SHARES = {"add": 60, "cancel": 14, "option": 14, "forget": 3, "rest": 6, "kind": 2}
"""Weights of the random actions, roughly in per cent."""


class _Turn(NamedTuple):
    """A place in a chat from which it can go on: everything read and written so far."""

    chat: str
    ids: list[int]


class _OpenRequest:
    """A request: how many of its answers are still to end, and what was written of the first one."""

    def __init__(self, turn: _Turn, answers: int) -> None:
        self.turn, self.left = turn, set(range(answers))
        self.written: list[int] = []
        self.cancels_at: int | None = None


class Soak:
    """One engine and everything that it was asked. Used by one thread; events come over a queue."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._engine = Engine(self._events.put)
        self._thread = threading.Thread(target=self._engine.run, name="engine", daemon=True)
        self._thread.start()
        self._asked: dict[str, _OpenRequest] = {}
        self._turns: list[_Turn] = []
        self._last: StepRecord | None = None
        self._number = 0
        self._heard_at = self._began = time.monotonic()
        self._every = 0.0
        self._samples: list[SoakSample] = []
        self._problem = ""
        """What the engine said last of something that it could not do."""
        self.counts: Counter[str] = Counter()
        """What was done, and how answers ended."""
        self.wrong: list[str] = []
        """Answers that nobody asked for or that did not end, and failures inside the engine; sentences."""

    def __enter__(self) -> Soak:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.submit(Shutdown())
        self._thread.join(PATIENCE_S)

    def load(self, load: LoadModel) -> None:
        """Load the model, then again with a cache that soon is too small. Raises :class:`EngineError`."""
        self._load(load)
        card, fit = self._model.card, self._model.fit
        context = min(card.context, CONTEXT)
        held = fit.weights + fit.draft_weights + fit.activations
        memory = held + int(TIGHT_ROOM * context * fit.kv / max(1, fit.kv_tokens)) + 1
        tight = LoadOptions(context=context, memory=memory, quantise=load.options.quantise)
        self._load(load._replace(options=tight))
        self._engine.submit(Set(key=keys.HOST_CACHE, value=HOST_GB))

    def run(self, seconds: float) -> SoakFigures:
        """Use the engine for ``seconds``, then let every answer end. 300 samples, at least half a second apart."""
        self._began, self._every = time.monotonic(), max(0.5, seconds / 300)
        self._samples = [self._sample()]
        said, due = 0, LEAST_BETWEEN_S
        while (passed := time.monotonic() - self._began) < seconds:
            if passed >= due:
                self._reload()
                due = time.monotonic() - self._began + max(LEAST_BETWEEN_S, seconds / LOADS)
            self._do()
            self._hear(self._random.uniform(0, 0.05))
            if int(10 * passed / seconds) > said:
                said = int(10 * passed / seconds)
                last = self._samples[-1]
                held = f"{last.rss / MB:.0f} MB, {last.in_use} pages in use, {last.cached} cached"
                say(f"{10 * said} %: {self.counts['asked']} answers asked for, {held}")
        self._finish()
        self._hear(0.5)  # an answer's pages go after its end was told
        self._samples.append(self._sample())
        if in_use := self._samples[-1].in_use:
            self.wrong.append(f"{in_use} pages are in use and nothing runs.")
        return SoakFigures(self._model.card.name, seconds, self._samples, dict(self.counts), self.wrong)

    def _do(self) -> None:
        """Do one random action."""
        what = self._random.choices(list(_SHARES), list(_SHARES.values()))[0]
        if what == "add" and len(self._asked) < MOST_RUNNING:
            self._add()
        elif what == "cancel" and self._asked:
            self._submit("cancels", Cancel(id=self._random.choice(list(self._asked))))
        elif what in ("option", "kind"):
            self._set(kinds=what == "kind")
        elif what == "forget" and self._turns:
            chat = self._random.choice(self._turns).chat
            self._turns = [turn for turn in self._turns if turn.chat != chat]
            self._submit("chats deleted", ForgetChat(chat=chat))
        elif what == "rest":
            self._finish()

    def _reload(self) -> None:
        """Load the model again, which ends all answers, and see what is held with an empty cache."""
        model = self._model
        again = model.command
        del model  # or it would stay in memory with the new one
        self._load(again)
        self._finish()
        self._hear(0.2)
        self._samples.append(msgspec.structs.replace(self._sample(), fresh=True))

    def _add(self) -> None:
        """A new chat, the next turn of one, or a branch from an earlier turn; a few are too long and refused."""
        turn = self._from()
        prompt = [*turn.ids, *self._question()]
        context = self._model.card.context
        if len(prompt) > context and self._random.random() < 0.8:
            prompt = prompt[-context // 2 :]
        answers = self._random.choice((1, 1, 1, 1, 2, 3))
        sampling = Sampling(
            temperature=self._random.choice((0.0, 0.7, 1.0)),
            top_p=self._random.choice((None, 0.9)),
            seed=self._random.randrange(1 << 31),
            max_tokens=self._random.choice((1, 8, 24, 64)),
            ignore_eos=self._random.random() < 0.5,
        )
        self._number += 1
        name = f"s{self._number}"
        asked = self._asked[name] = _OpenRequest(_Turn(turn.chat, prompt), answers)
        if self._random.random() < 0.25:
            asked.cancels_at = self._random.randrange(1, 24)
        self.counts["asked"] += answers
        request = AnswerRequest([], sampling, n=answers, chat=turn.chat)
        self._submit("requests", request.command(PromptTokens(prompt), id=name))

    def _from(self) -> _Turn:
        if not self._turns or (len(self._turns) < MOST_CHATS and self._random.random() < 0.3):
            return _Turn(f"chat {self._number}", [])
        if self._random.random() < 0.6:
            return self._turns[-1]
        self.counts["branches"] += 1
        return self._random.choice(self._turns)

    def _question(self) -> list[int]:
        """Random tokens with many repetitions, so that n-gram drafting finds some."""
        some = [self._random.randrange(self._model.card.vocabulary) for _ in range(self._random.choice((4, 16, 40)))]
        return some * self._random.choice((1, 1, 3))

    def _set(self, kinds: bool) -> None:
        spec = self._random.choice([spec for spec in self._engine.catalogue_state() if _settable(spec, kinds)])
        values: list[Value] = [spec.default, *spec.measure.compare]
        if spec.kind == "bool":
            values = [True, False]
        elif spec.kind == "choice":
            values = [choice for choice in spec.titles if choice not in spec.disabled_choices]
        self._submit("KV kinds" if kinds else "switches", Set(key=spec.key, value=self._random.choice(values)))

    def _submit(self, counted: str, command: Command) -> None:
        self.counts[counted] += 1
        self._engine.submit(command)

    def _hear(self, seconds: float) -> None:
        """Take in events for ``seconds``, and take a sample where one is due."""
        if self._samples and time.monotonic() - self._began >= self._samples[-1].seconds + self._every:
            self._samples.append(self._sample())
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                self._take(self._events.get(timeout=left))
            except queue.Empty:
                return

    def _take(self, event: Event) -> None:
        self._heard_at = time.monotonic()
        match event:
            case StepRecord():
                self._last = event
            case Delta(id=name, answer=0) if name in self._asked:
                asked = self._asked[name]
                asked.written += [token.id for token in event.tokens]
                if asked.cancels_at is not None and len(asked.written) >= asked.cancels_at:
                    asked.cancels_at = None
                    self._submit("cancels", Cancel(id=name))
            case Finished(id=name):
                self._end(name, event)
            case Error(id=name) if name:
                self.counts["refused"] += len(self._asked.pop(name).left) if name in self._asked else 0
            case Error(code="internal"):
                self.wrong.append(event.message)
            case Error():
                self._problem = event.message

    def _end(self, name: str, event: Finished) -> None:
        asked = self._asked.get(name)
        if asked is None or event.answer not in asked.left:
            self.wrong.append(f"Answer {event.answer} of {name} ended, which was not running.")
            return
        self.counts[event.reason] += 1
        if event.reason == "error":
            self.wrong.append(event.detail or f"Answer {event.answer} of {name} failed.")
        asked.left.discard(event.answer)
        if event.answer == 0 and event.usage.generated_tokens != len(asked.written):
            self.wrong.append(
                f"{name} has {event.usage.generated_tokens} tokens, of which {len(asked.written)} were sent."
            )
        if not asked.left:
            del self._asked[name]
            self._turns = [*self._turns, _Turn(asked.turn.chat, asked.turn.ids + asked.written)][-4 * MOST_CHATS :]

    def _finish(self) -> None:
        """Wait until every answer has ended."""
        for _ in self._waiting():
            if not self._asked:
                return
        self.wrong += [f"{name} never ended." for name in self._asked]
        self._asked.clear()

    def _load(self, command: LoadModel) -> None:
        """Raises :class:`EngineError`. Commands are done in order: what is asked behind a load is answered after it."""
        done = threading.Event()
        self._problem = ""
        self._submit("loads", command)
        self._engine.submit(Inspect("page", lambda seen: done.set()))
        for _ in self._waiting():
            if done.is_set():
                break
        if self._engine.loaded is None or not done.is_set():
            raise EngineError(self._problem or f"{command.path} was not loaded.")

    def _waiting(self) -> Iterator[None]:
        self._heard_at = time.monotonic()
        while time.monotonic() - self._heard_at < PATIENCE_S:
            yield
            self._hear(0.02)

    @property
    def _model(self) -> LoadedModel:
        for _ in self._waiting():
            if (model := self._engine.loaded) is not None:
                return model
        raise EngineError("No model is loaded any more.")

    def _sample(self) -> SoakSample:
        process, pages, last = psutil.Process(), self._engine.cache_pages(), self._last
        return SoakSample(
            seconds=time.monotonic() - self._began,
            rss=process.memory_info().rss,
            descriptors=process.num_fds() if hasattr(process, "num_fds") else process.num_handles(),
            in_use=pages.used - pages.cached,
            cached=pages.cached,
            running=last.queue.running if last is not None and self._asked else 0,
            queued=last.queue.waiting if last is not None and self._asked else 0,
        )


def _settable(spec: OptionSpec, kinds: bool) -> bool:
    if (
        spec.disabled_reason
        or spec.key in _LEFT_ALONE
        or not (spec.choices or spec.measure.compare or spec.kind == "bool")
    ):
        return False
    return spec.applies == "cache" if kinds else spec.applies in ("live", "next request")
