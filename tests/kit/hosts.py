"""The engine with a real model loaded from files, stepped by hand: the one that tests of texts ask."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from engine.cache.offload.saved import SavedChats
from engine.decoding.telemetry.records import StepRecord
from engine.loading.model import LoadModel
from engine.loop.commands import AddRequest
from engine.loop.engine import Engine
from engine.loop.stepper import Stepper
from engine.protocol import LoadOptions, Sampling, Set, Unload, Value
from tests.kit.listener import Answer, Listener


class Host:
    """In float32 and batch-invariant, so that texts are comparable to the token. It is closed by ``with``."""

    def __init__(
        self, folder: Path, draft: str = "", saved: SavedChats | None = None, memory: float = 200e6, **switches: Value
    ) -> None:
        self.heard = Listener()
        self._variant: Mapping[str, Value] = {}
        self._plain: dict[str, list[list[int]]] = {}
        self.engine = Engine(self.heard, device="cpu", saved=saved)
        self.engine.submit(LoadModel(str(folder), draft, LoadOptions(device="cpu", dtype="float32", memory=memory)))
        self.set(batch_invariant=True, **switches)
        self.check()
        assert self.engine.loaded is not None

    def __enter__(self) -> Host:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.engine.submit(Unload())
        self.engine.step()

    @property
    def stepper(self) -> Stepper:
        assert self.engine._stepper is not None
        return self.engine._stepper

    @property
    def answers(self) -> dict[tuple[str, int], Answer]:
        """By the id of a request and the number of the answer to it."""
        return self.heard.answers

    @property
    def steps(self) -> list[StepRecord]:
        return self.heard.steps

    @property
    def cached(self) -> dict[str, int]:
        """How many tokens of each prompt came from the cache, in the order in which they were asked."""
        ended = {id: answer.finished for (id, _), answer in self.answers.items()}
        return {id: finished.usage.cached_tokens for id, finished in ended.items() if finished is not None}

    def set(self, **switches: Value) -> None:
        for key, value in switches.items():
            self.engine.submit(Set(key=key, value=value))
        self.engine.step()

    def fresh(self, variant: Mapping[str, Value] = {}) -> None:
        """A kind of cache and a page policy, with nothing in it."""
        self.set(page_policy="keep_all", kv_kind="16bit")
        self.set(**variant)
        assert all(self.engine._options.values[key] == value for key, value in variant.items())
        self._variant = variant
        self.stepper.cache.tree.evict(1 << 30)
        self.stepper.cache.space.resize(0)

    def check(self) -> None:
        """Nothing went wrong so far."""
        assert not self.heard.errors, self.heard.errors
        for answer in self.answers.values():
            assert answer.reason not in ("error", "memory"), answer.finished

    def ask(
        self, prompts: list[list[int]], sampling: Sampling, n: int = 1, chat: str = "", **switches: Value
    ) -> list[str]:
        ids = [f"{len(self.answers)}.{number}" for number in range(len(prompts))]
        for id, prompt in zip(ids, prompts, strict=True):
            self.engine.submit(AddRequest(id, prompt, sampling, n, switches, chat=chat))
        return ids

    def run(self, budget: int = 512, disturb: random.Random | None = None) -> int:
        """Until all are answered; with ``disturb`` answers are preempted at random. Returns how often that was: at most
        100 times, as a long prompt that is read again from its beginning each time would hardly come to its end.

        ``budget`` is of rows a step, below the catalogue's least value too: a chunk of one token is the hardest case.
        """
        self.engine._options.values["token_budget"] = budget
        gave_way = 0
        for _ in range(5000):
            running = self.stepper.scheduler.running
            if disturb is not None and running and gave_way < 100 and disturb.random() < 0.5:
                self.stepper.scheduler.preempt(disturb.choice(running))
                self.stepper.cache.tree.evict(disturb.randrange(12))
                gave_way += 1
            if not self.engine.step():
                break
            self.stepper.cache.check()
        else:
            raise AssertionError("no end after 5,000 steps")
        self.stepper.cache.check(idle=True)
        self.check()
        return gave_way

    def answer(
        self, prompts: list[list[int]], sampling: Sampling, budget: int = 512, **switches: Value
    ) -> list[Answer]:
        """All prompts at once, to their ends; what was answered before is forgotten."""
        self.answers.clear()
        self.steps.clear()
        ids = self.ask(prompts, sampling, **switches)
        self.run(budget)
        return [self.answers[id, 0] for id in ids]

    def texts(self, prompts: list[list[int]], sampling: Sampling, n: int = 1, budget: int = 512) -> list[list[int]]:
        """All prompts together, with the prefix cache on."""
        ids = self.ask(prompts, sampling, n)
        self.run(budget)
        return self.of(ids, n)

    def plain(self, prompts: list[list[int]], sampling: Sampling, n: int = 1) -> list[list[int]]:
        """The texts without drafts and sharing, one after another; computed once for each variant."""
        key = repr((self._variant, prompts, sampling, n))
        if key not in self._plain:
            self._plain[key] = []
            for prompt in prompts:
                ids = self.ask([prompt], sampling, n, prefix_cache=False, speculation="off")
                self.run()
                self._plain[key] += self.of(ids, n)
        return self._plain[key]

    def of(self, ids: list[str], n: int = 1) -> list[list[int]]:
        """The tokens of the answers."""
        return [self.answers[id, number].tokens for id in ids for number in range(n)]

    def sources(self, ids: list[str]) -> list[str]:
        """Where the tokens of all answers to these came from."""
        return [source for (id, _), answer in self.answers.items() if id in ids for source in answer.sources]


def load(heard: Listener, target: Path | str, draft: Path | str = "", **options: object) -> Engine:
    """An engine that has loaded the model, or has told ``heard`` why not."""
    engine = Engine(heard, device="cpu")
    settings = LoadOptions(**{"device": "cpu", "dtype": "float32", "memory": 300e6, **options})
    engine.submit(LoadModel(str(target), str(draft), settings))
    engine.step()
    return engine


def generate(heard: Listener, engine: Engine, **switches: Value) -> list[int]:
    """Twenty tokens after three, greedily."""
    id = f"r{len(heard.answers)}"
    sampling = Sampling(temperature=0.0, max_tokens=20, ignore_eos=True)
    engine.submit(AddRequest(id, [1, 2, 3], sampling, 1, switches))
    while engine.step():
        pass
    return heard.answers[id, 0].tokens
