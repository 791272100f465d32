"""A text that begins with another's packed pages and recent tokens has the very bits of one read from nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.cache.stores.kinds import KVKind
from engine.cache.stores.recent import recent_span
from engine.compute.runner.runner import Runner
from engine.loop.commands import AddRequest
from engine.loop.engine import Engine
from engine.protocol import Sampling, Set
from tests.engine.loop.kinds_support import LONG, Sequence1, in_chunks
from tests.kit.checkpoints import write_small
from tests.kit.hosts import load
from tests.kit.listener import Listener
from tests.kit.models import tokens

KIND = KVKind("kivi", 2, 2, 64)


@pytest.mark.parametrize("first", [20, 64, 95, 96, 97, 133, 160])
@pytest.mark.parametrize("size", [1, 7, 100])
def test_rows_after_shared_pages_have_the_same_logits(first: int, size: int) -> None:
    torch.set_num_threads(1)
    ids = tokens(LONG)
    other = Sequence1(KIND)
    other.forward(ids[:first], 0)
    other.rows([0], first)  # its dead recent pages are spoilt
    packed, stop = recent_span(first, 0, KIND.residual)
    mine = Sequence1(KIND)
    mine.store, mine.runner = other.store, other.runner
    mine.pages = [*other.pages[:packed], *range(20, 38)]
    free = [page for page in range(1, 30) if page not in other.recent]
    mine.recent, mine.free = [0] * packed + other.recent[packed:stop], free
    if first % 16:  # copy-on-write
        assert mine.store.recent is not None
        copy = mine.free.pop(0)
        mine.store.recent.copy_page(mine.recent[-1], copy)
        mine.recent[-1] = copy
    logits = torch.cat([mine.forward(ids[at : at + size], at) for at in range(first, LONG, size)])
    assert torch.equal(logits, in_chunks(Sequence1(KIND), ids, LONG)[first:])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_small(tmp_path_factory.mktemp("models") / "target")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 1024}))
    return folder


@pytest.fixture
def heard() -> Iterator[Listener]:
    torch.set_num_threads(1)
    return Listener()


def kivi(heard: Listener, model: Path, **options: bool | float | str) -> Engine:
    engine = load(heard, model, model)
    for key, value in {"kv_kind": "kivi", "batch_invariant": True, **options}.items():
        engine.submit(Set(key=key, value=value))
    while engine.step():
        pass
    return engine


def answer(heard: Listener, engine: Engine, id: str, prompt: list[int], speculation: str) -> list[tuple[int, float]]:
    sampling = Sampling(temperature=0.0, max_tokens=40, ignore_eos=True, logprobs=0)
    engine.submit(AddRequest(id, prompt, sampling, 1, {"speculation": speculation}))
    while engine.step():
        pass
    found = heard.answers[id, 0]
    assert found.reason == "length"
    assert all(info.logprob is not None for info in found.infos)
    return [(info.id, info.logprob or 0.0) for info in found.infos]


@pytest.mark.parametrize(("speculation", "budget"), [("off", 512), ("ngram", 16), ("draft", 16)])
def test_a_second_turn_has_the_bits_of_a_cold_one(heard: Listener, model: Path, speculation: str, budget: int) -> None:
    engine = kivi(heard, model, token_budget=budget)
    prompt = [(7 * i + i // 5) % 26 for i in range(210)]
    first = answer(heard, engine, "first", prompt, speculation)
    again = [*prompt, *(token for token, _ in first), 4, 8, 15, 16, 23]
    second = answer(heard, engine, "second", again, speculation)
    finished = heard.answers["second", 0].finished
    assert finished is not None
    assert finished.usage.cached_tokens == 249
    cold = Listener()
    assert answer(cold, kivi(cold, model, prefix_cache=False), "cold", again, "off") == second
    assert not heard.errors


def test_an_answer_comes_back_from_host_memory_with_its_bits(heard: Listener, model: Path) -> None:
    engine = kivi(heard, model, preemption="swap")
    prompt = [(7 * i + i // 5) % 26 for i in range(210)]
    sampling = Sampling(temperature=0.0, max_tokens=40, ignore_eos=True, logprobs=0)
    engine.submit(AddRequest("swapped", prompt, sampling, 1, {"speculation": "off"}))
    for _ in range(20):
        engine.step()
    stepper = engine._stepper
    assert stepper is not None
    stepper.scheduler.preempt(stepper.requests["swapped", 0])
    assert stepper.cache.space.counts.handles == 2, "packed pages and recent ones"
    answer(heard, engine, "other", prompt[::-1], "off")
    stepper.cache.check(idle=True)
    assert stepper.cache.stats.swapped_in > 0
    found = [(info.id, info.logprob) for info in heard.answers["swapped", 0].infos]
    cold = Listener()
    assert answer(cold, kivi(cold, model, prefix_cache=False), "cold", prompt, "off") == found


def test_bits_are_told_with_and_without_the_recent_tokens(heard: Listener, model: Path) -> None:
    engine = kivi(heard, model)
    stats, loaded = engine.cache_stats(), engine.loaded
    assert loaded is not None
    assert isinstance(loaded.runner, Runner)
    assert loaded.runner.kv.recent is not None
    assert stats.bits_per_element == 3.5, "keys in groups of 32 tokens, values in groups of the 16 channels there are"
    elements = loaded.pages * 16 * 2 * 16  # of one layer, one head and 16 channels
    both = loaded.runner.kv.storage_size()
    assert 8 * (both - loaded.runner.kv.recent.storage_size()) == stats.bits_per_element * elements
    assert 8 * both == stats.bits_with_recent * elements
    assert stats.bits_with_recent > stats.bits_per_element
    engine.submit(Set(key="kv_kind", value="16bit"))
    engine.step()
    assert engine.cache_stats().bits_with_recent == engine.cache_stats().bits_per_element == 32.0
