"""Whatever the cache does, the text is the same: a real model in fp32 with batch-invariant arithmetic.

What is compared with is the same kind of cache and the same page policy without any sharing: one prompt after another,
each read in one step.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from engine.cache.offload.saved import SavedChats
from engine.cache.pool import PagePool
from engine.core.commands import AddRequest
from engine.core.engine import Engine
from engine.core.events import Event
from engine.core.stepper import Stepper
from engine.loading.model import LoadModel
from engine.protocol import Delta, Error, Finished, LoadOptions, Sampling, Set, Unload, Value
from tests.conformance.test_speculation_equality import EOS, write_model

Answers = dict[tuple[str, int], list[int]]


class Variant(NamedTuple):
    """A setting of the cache within which every answer is the same however it was come by."""

    switches: dict[str, Value]
    shares: bool | None = True
    """Whether prompts that begin alike find each other; None: it depends on where they end (KIVI's snapshots)."""


VARIANTS = {
    "16bit": Variant({}),
    "int8": Variant({"kv_kind": "int8"}),
    "fp8": Variant({"kv_kind": "fp8"}),
    "int4": Variant({"kv_kind": "int4"}),
    "kivi": Variant({"kv_kind": "kivi"}, shares=None),
    "quest": Variant({"page_policy": "quest", "quest_tokens": 64}),
    "window": Variant({"page_policy": "window_sinks", "window_tokens": 64}, shares=False),
}
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0, max_tokens=14, ignore_eos=True),
    "seeded": Sampling(temperature=1.0, seed=11, max_tokens=14, ignore_eos=True),
}
COMMON = [(7 * i + i * i // 5) % EOS for i in range(200)]
PROMPTS = [COMMON[:150], COMMON[:137], [*COMMON[:90], *COMMON[:60]], [*COMMON[:75], 3, 4], COMMON[50:150]]


class Host:
    """An engine with the model loaded, stepped by hand; ``disturb`` is called before each step."""

    def __init__(self, folder: Path, saved: SavedChats | None = None, draft: str = "", memory: float = 200e6) -> None:
        self.answers: Answers = {}
        self.sources: dict[str, list[str]] = {}
        self.cached: dict[str, int] = {}
        self._plain: dict[tuple[str, str, int], list[list[int]]] = {}
        self.engine = Engine(self._hear, device="cpu", saved=saved)
        self.engine.submit(LoadModel(str(folder), draft, LoadOptions(device="cpu", dtype="float32", memory=memory)))
        self.set(batch_invariant=True)

    @property
    def stepper(self) -> Stepper:
        assert self.engine._stepper is not None
        return self.engine._stepper

    def set(self, **switches: Value) -> None:
        for key, value in switches.items():
            self.engine.submit(Set(key=key, value=value))
        self.engine.step()

    def fresh(self, variant: Variant) -> None:
        """The variant's kind of cache and page policy, with nothing in it."""
        self.set(page_policy="keep_all", kv_kind="16bit")
        self.set(**variant.switches)
        assert all(self.engine._options.values[key] == value for key, value in variant.switches.items())
        self.stepper.cache.tree.evict(1 << 30)
        self.stepper.cache.space.resize(0)

    def _hear(self, event: Event) -> None:
        match event:
            case Delta(id=id, answer=answer, text=_, tokens=infos):
                self.answers.setdefault((id, answer), []).extend(info.id for info in infos)
                self.sources.setdefault(id, []).extend(info.source for info in infos)
            case Finished():
                assert event.reason not in ("error", "memory"), event.detail
                self.cached[event.id] = event.usage.cached_tokens
            case Error():
                raise AssertionError(event.message)

    def ask(
        self, prompts: list[list[int]], sampling: Sampling, n: int = 1, chat: str = "", **switches: Value
    ) -> list[str]:
        ids = [f"{len(self.answers)}.{number}" for number in range(len(prompts))]
        for id, prompt in zip(ids, prompts, strict=True):
            self.engine.submit(AddRequest(id, prompt, sampling, n, switches, chat=chat))
        return ids

    def run(self, budget: int = 512, disturb: random.Random | None = None) -> int:
        """Until all are answered; returns how often somebody gave way."""
        self.engine._options.values["token_budget"] = budget
        gave_way = 0
        for _ in range(5000):
            running = self.stepper.scheduler.running
            if disturb is not None and running and disturb.random() < 0.5:
                self.stepper.scheduler.preempt(disturb.choice(running))
                self.stepper.cache.tree.evict(disturb.randrange(12))
                gave_way += 1
            if not self.engine.step():
                break
            self.stepper.cache.check()
        self.stepper.cache.check(idle=True)
        return gave_way

    def texts(self, prompts: list[list[int]], sampling: Sampling, n: int = 1, budget: int = 512) -> list[list[int]]:
        """All prompts together, with the prefix cache on."""
        ids = self.ask(prompts, sampling, n)
        self.run(budget)
        return self.of(ids, n)

    def plain(self, variant: str, sampling: str, n: int = 1) -> list[list[int]]:
        """The texts of ``PROMPTS`` without drafts and sharing, one after another; of the variant that is set, once."""
        key = variant, sampling, n
        if key not in self._plain:
            self._plain[key] = []
            for prompt in PROMPTS:
                ids = self.ask([prompt], SAMPLINGS[sampling], n, prefix_cache=False)
                self.run()
                self._plain[key] += self.of(ids, n)
        return self._plain[key]

    def of(self, ids: list[str], n: int = 1) -> list[list[int]]:
        return [self.answers[id, number] for id in ids for number in range(n)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models") / "target"
    write_model(folder, 0.0, layers=3, width=128)
    return folder


@pytest.fixture(scope="module")
def host(folder: Path) -> Iterator[Host]:
    host = Host(folder)
    yield host
    host.engine.submit(Unload())
    host.engine.step()


def cases(*often: str, by: tuple[str, ...] = ()) -> list[object]:
    """All variants, or variants and whatever ``by`` says; those of ``often`` in every run of the tests."""
    names = [f"{variant}-{other}" for variant in VARIANTS for other in by] if by else list(VARIANTS)
    assert set(often) <= set(names)
    marks = {name: () if name in often else pytest.mark.long for name in names}
    return [pytest.param(*name.split("-"), marks=marks[name], id=name) for name in names]


@pytest.mark.parametrize(
    ("variant", "sampling"), cases("16bit-greedy", "16bit-seeded", "kivi-seeded", "window-seeded", by=tuple(SAMPLINGS))
)
def test_sharing_and_chunks(host: Host, variant: str, sampling: str) -> None:
    host.fresh(VARIANTS[variant])
    expected = host.plain(variant, sampling)
    for budget in (512, 33, 16):
        assert host.texts(PROMPTS, SAMPLINGS[sampling], budget=budget) == expected
        found = [host.cached[id] for id in list(host.cached)[-len(PROMPTS) :]]
        if VARIANTS[variant].shares is not None:
            assert any(found) == VARIANTS[variant].shares
        if budget == 33:
            host.stepper.cache.tree.evict(1 << 30)


@pytest.mark.parametrize("variant", cases("16bit", "quest"))
def test_several_answers(host: Host, variant: str) -> None:
    host.fresh(VARIANTS[variant])
    expected = host.plain(variant, "seeded", 3)
    assert expected[::3] == host.plain(variant, "seeded"), "the first of several is the single one"
    assert host.texts(PROMPTS, SAMPLINGS["seeded"], 3) == expected
    assert host.texts(PROMPTS, SAMPLINGS["seeded"], 3, 40) == expected


@pytest.mark.parametrize(
    ("variant", "mode"),
    cases("16bit-swap", "16bit-recompute", "quest-recompute", "kivi-swap", by=("swap", "recompute", "auto")),
)
def test_preemption_at_random_moments(host: Host, variant: str, mode: str) -> None:
    host.fresh(VARIANTS[variant])
    expected = host.plain(variant, "seeded", 3)
    host.set(preemption=mode, host_cache=1.0)
    for seed in range(2):
        ids = host.ask(PROMPTS, SAMPLINGS["seeded"], 3)
        before = host.stepper.cache.stats.swapped_in
        assert host.run(100, random.Random(seed)) > 2
        assert host.of(ids, 3) == expected
        if mode == "swap" and variant in ("16bit", "int8", "int4"):
            assert host.stepper.cache.stats.swapped_in > before


@pytest.mark.parametrize("variant", cases("int4"))
def test_pages_in_any_order(host: Host, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host.fresh(VARIANTS[variant])
    expected = host.plain(variant, "seeded")
    order = random.Random(5)

    def take(self: PagePool, wish: int) -> int:
        page = order.choice([page for page, count in enumerate(self._refs) if page and not count])
        self._refs[page] = 1
        return page

    monkeypatch.setattr(PagePool, "_take", take)
    assert host.texts(PROMPTS, SAMPLINGS["seeded"], budget=50) == expected


@pytest.mark.parametrize("variant", cases("16bit", "int8", "quest"))
def test_a_chat_goes_on_after_a_restart(folder: Path, tmp_path: Path, variant: str) -> None:
    """Asked, answered and saved by one engine; continued by another, and without any cache by a third time."""
    sampling, switches = SAMPLINGS["seeded"], VARIANTS[variant].switches
    saved = SavedChats(tmp_path / "chats", 1 << 30)
    first = Host(folder, saved)
    first.set(disk_cache=1.0, **switches)
    ids = first.ask(PROMPTS[:1], sampling, chat="a chat")
    first.run()
    assert saved.flush(20)
    saved.close()
    longer = [*PROMPTS[0], *first.of(ids)[0], 5, 6, 7]
    second = Host(folder, saved := SavedChats(tmp_path / "chats", 1 << 30))
    second.set(disk_cache=1.0, **switches)
    ids = second.ask([longer], sampling, chat="a chat")
    second.run()
    if VARIANTS[variant].shares:
        whole = len(PROMPTS[0]) if variant == "quest" else len(longer) - 4
        assert second.cached[ids[0]] == whole // 16 * 16
    alone = second.ask([longer], sampling, prefix_cache=False)
    second.run()
    assert second.of(ids) == second.of(alone)
    saved.close()
