"""Layers with a sliding window that keep the tokens in it alone: the text is that of layers which keep everything.

In fp32, batch-invariant, as in test_cache_equality.py. What is compared with is the same model with the switch off,
without any sharing, one prompt after another.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import transformers
from torch import Tensor

from engine.cache.groups.window import WindowGroup
from engine.cache.offload.saved import SavedChats
from engine.cache.stores.windowed import WindowedStore
from engine.compute.sampling.draw import Draw
from engine.compute.sampling.params import SamplingParams
from engine.compute.sampling.sampler import by_torch
from engine.loading.memory import estimate
from engine.protocol import Sampling, Value
from tests.conformance.gemma_models import SHAPE as GEMMA4
from tests.conformance.texts import COMMON, PROMPTS, SAMPLINGS, VARIANTS, restarted
from tests.kit.checkpoints import EOS, write_llama, write_tokenizer
from tests.kit.examples import some
from tests.kit.hosts import Host
from tests.kit.pairs import each_value

LOCAL, GLOBAL = "sliding_attention", "full_attention"
COMMONS: dict[str, Any] = {
    "vocab_size": EOS + 1,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "eos_token_id": EOS,
    "bos_token_id": None,
    "pad_token_id": None,
}
GEMMA3 = COMMONS | {"num_hidden_layers": 4, "layer_types": [LOCAL, LOCAL, LOCAL, GLOBAL], "sliding_window": 20}
GPT_OSS = COMMONS | {
    "num_hidden_layers": 4,
    "layer_types": [LOCAL, GLOBAL, LOCAL, GLOBAL],
    "sliding_window": 24,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
}
MISTRAL = COMMONS | {"num_hidden_layers": 4, "sliding_window": 33}
MODELS: dict[str, Callable[[], transformers.PreTrainedModel]] = {
    "gemma3": lambda: transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**GEMMA3)),
    "gemma4": lambda: transformers.Gemma4ForCausalLM(transformers.Gemma4TextConfig(**GEMMA4)),
    "gpt-oss": lambda: transformers.GptOssForCausalLM(transformers.GptOssConfig(**GPT_OSS)),
    "mistral": lambda: transformers.MistralForCausalLM(transformers.MistralConfig(**MISTRAL)),
}
"""Layers of both kinds, and (Mistral) of one alone."""


def write(folder: Path, name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            norm = "norm" in parameter_name.rsplit(".", 2)[-2]
            low, high = (-0.3, 0.3) if name == "gemma3" else (0.7, 1.3)
            parameter.uniform_(low, high) if norm else parameter.normal_(0, 0.12)
    model.save_pretrained(folder)
    write_tokenizer(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models")
    for name in MODELS:
        write(folder / name, name)
    return {name: folder / name for name in MODELS}


class Windowed(Host):
    """A host whose model has few slots, or many, for its windows; and what it says with all pages kept."""

    def __init__(self, folder: Path, slots: int | None, saved: SavedChats | None = None) -> None:
        self.slots = slots
        super().__init__(folder, saved=saved)

    def set(self, **switches: Value) -> None:
        with pytest.MonkeyPatch.context() as patch:
            if self.slots is not None:
                patch.setattr(estimate, "_window_pages", lambda *_: self.slots)
            super().set(**switches)

    @property
    def windows(self) -> WindowGroup:
        windows = self.stepper.cache.manager.groups[-1]
        assert isinstance(windows, WindowGroup)
        assert isinstance(self.stepper.model.stores[0], WindowedStore)
        return windows

    def expected(self, prompts: list[list[int]], sampling: Sampling, n: int = 1, **switches: Value) -> list[list[int]]:
        """With all pages kept."""
        self.set(window_pages=False, **switches)
        assert not isinstance(self.stepper.model.stores[0], WindowedStore)
        self._variant = switches
        texts = self.plain(prompts, sampling, n)
        self.set(window_pages=True)
        assert self.windows.slots.kept == 0, "the cache is new"
        return texts


FEW = 11
"""A window of 40 tokens takes 4 of these, a copy one, and there is no slot 0."""


OFTEN = ("gemma3-many", "gpt-oss-few")
"""All models have few slots and many; these in every run of the tests."""


CASES = {f"{name}-{how}": (name, how) for name in MODELS for how in ("many", "few")}


@pytest.fixture(
    scope="module",
    params=[pytest.param(CASES[case], id=case, marks=() if case in OFTEN else pytest.mark.long) for case in CASES],
)
def host(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Iterator[Windowed]:
    name, how = request.param
    with Windowed(folders[name], FEW if how == "few" else None) as host:
        yield host


SEEDED = SAMPLINGS["seeded"]


@pytest.mark.slow
def test_sharing_and_chunks(host: Windowed) -> None:
    expected = host.expected(PROMPTS, SEEDED)
    assert len({tuple(text) for text in expected}) > 2
    for budget in some(512, 33, more=(16,)):
        assert host.texts(PROMPTS, SEEDED, budget=budget) == expected
        if host.slots is None:
            assert any(host.cached[id] for id in list(host.cached)[-len(PROMPTS) :])


@pytest.mark.slow
def test_texts_that_part_at_every_page(host: Windowed) -> None:
    """The beginning is found again while its window's slots are there, and else less of it."""
    short = SEEDED
    prompts = [[*COMMON[: 16 * pages + 3], 5, 9, pages] for pages in range(1, 12)]
    expected = host.expected([COMMON, *prompts], short)
    assert host.texts([COMMON], short) == expected[:1]
    found = []
    for prompt, text in zip(prompts, expected[1:], strict=True):
        ids = host.ask([prompt], short)
        host.run()
        assert host.of(ids) == [text]
        found.append(host.cached[ids[0]])
    if host.slots is None:
        assert found == [len(prompt) - 3 for prompt in prompts]
    else:
        assert sum(found) < sum(len(prompt) - 3 for prompt in prompts)


def test_a_chat_goes_on_from_the_end_of_its_last_turn(host: Windowed) -> None:
    expected = host.expected(PROMPTS[:1], SEEDED)
    assert host.texts(PROMPTS[:1], SEEDED) == expected
    second = [*PROMPTS[0], *expected[0], 7, 8]
    ids = host.ask([second], SEEDED)
    host.run()
    assert host.cached[ids[0]] == (len(second) - 3) // 16 * 16
    assert host.of(ids) == host.expected([second], SEEDED)


@pytest.mark.slow
def test_several_answers(host: Windowed) -> None:
    expected = host.expected(PROMPTS[:3], SEEDED, 3)
    assert host.texts(PROMPTS[:3], SEEDED, 3) == expected
    assert host.texts(PROMPTS[:3], SEEDED, 3, 40) == expected


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["swap", "recompute"])
def test_preemption_at_random_moments(host: Windowed, mode: str) -> None:
    expected = host.expected(PROMPTS, SEEDED)
    host.set(preemption=mode, host_cache=1.0)
    before = host.stepper.cache.stats.swapped_in
    gave_way = 0
    for seed in (1, 2):
        ids = host.ask(PROMPTS, SEEDED)
        gave_way += host.run(100, random.Random(seed))
        assert host.of(ids) == expected
    assert gave_way > 3
    assert (host.stepper.cache.stats.swapped_in > before) or mode == "recompute"
    host.set(preemption="auto", host_cache=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ngram", "exit", "skip"])
def test_drafts_change_nothing(host: Windowed, method: str) -> None:
    expected = host.expected(PROMPTS, SEEDED)
    drafted: set[str] = set()
    for length in (1, 4):
        ids = host.ask(PROMPTS, SEEDED, speculation=method, draft_length=length, tree_nodes=16)
        host.run()
        assert host.of(ids) == expected
        drafted |= set(host.sources(ids))
    assert method != "skip" or drafted > {"target"}


@pytest.mark.slow
@each_value(
    seldom=lambda host, **_: "-".join(host) not in OFTEN,
    indirect=["host"],
    host=CASES,
    variant=("int8", "int4", "kivi", "quest", "window"),
)
def test_kinds_and_policies(host: Windowed, variant: str) -> None:
    expected = host.expected(PROMPTS, SEEDED, **VARIANTS[variant].switches)
    for budget in (512, 33):
        assert host.texts(PROMPTS, SEEDED, budget=budget) == expected
    host.set(kv_kind="16bit", page_policy="keep_all")


def test_what_was_planned_is_allocated_and_counted(host: Windowed) -> None:
    host.set(window_pages=False)
    plain = host.stepper.model.stores[0]
    assert plain.storage_size() == host.stepper.model.fit.kv
    assert host.stepper.page_counts.share is None
    host.set(window_pages=True)
    store, fit = host.stepper.model.stores[0], host.stepper.model.fit
    assert isinstance(store, WindowedStore)
    assert store.storage_size() == fit.kv
    assert host.stepper.page_counts.share == 0
    host.texts(PROMPTS[:1], SEEDED)
    pages, slots = host.stepper.cache.pool.used_count, host.windows.pool.used_count
    used = slots * store.windowed.page_bytes + pages * (store.everything.page_bytes if store.everything else 0)
    assert host.stepper.page_counts.share == pytest.approx(used / fit.kv, rel=0.2 if host.slots else 0.01)


@pytest.mark.parametrize("name", ["gemma3", pytest.param("gpt-oss", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "switches",
    [{}, {"kv_kind": "kivi"}, {"kv_kind": "kivi", "window_pages": False}],
    ids=["windows", "recent tokens and windows", "recent tokens"],
)
def test_a_chat_goes_on_after_a_restart(
    folders: dict[str, Path], tmp_path: Path, name: str, switches: dict[str, Value]
) -> None:
    """From files that hold windows and recent tokens."""
    open_host = partial(Windowed, folders[name], None)
    with restarted(open_host, tmp_path / "chats", SEEDED, **switches) as (_, known, cached):
        assert cached == known // 16 * 16


def test_a_draft_model_beside_windows(folders: dict[str, Path]) -> None:
    """The draft has a window too, and keeps all of its own pages."""
    host = Host(folders["gemma3"], draft=str(folders["gemma3"]))
    host.set(window_pages=False)
    alone = host.plain(PROMPTS, SEEDED)
    host.set(window_pages=True)
    assert isinstance(host.stepper.model.stores[0], WindowedStore)
    ids = host.ask(PROMPTS, SEEDED, speculation="draft", draft_length=4)
    host.run()
    assert host.of(ids) == alone
    assert "draft" in host.sources(ids)


def test_a_model_without_windows_has_no_such_switch(tmp_path: Path) -> None:
    write_llama(tmp_path / "llama")
    host = Host(tmp_path / "llama")
    spec = next(spec for spec in host.engine._options.state() if spec.key == "window_pages")
    assert spec.hidden
    assert not isinstance(host.stepper.model.stores[0], WindowedStore)


class Drawn(NamedTuple):
    """What steps launched ahead are given for tokens, as `engine.compute.sampling.device.Pending`."""

    tokens: Tensor
    found: list[int | None]

    def read(self) -> list[int | None]:
        return self.found


class Device:
    """Draws as a GPU does; counts the steps that it was given."""

    launches = 0

    def draws(self, params: SamplingParams) -> bool:
        return True

    def launch(self, logits: Tensor, draws: Sequence[Draw]) -> Drawn:
        self.launches += 1
        found = list(by_torch(logits, draws))
        return Drawn(torch.tensor([token or 0 for token in found]), found)


def test_steps_launched_ahead(folders: dict[str, Path]) -> None:
    host, device = Windowed(folders["gemma3"], FEW), Device()
    expected = host.expected(PROMPTS[:2], SEEDED)
    host.engine._options.values |= {"async_scheduling": True, "batch_invariant": False}
    host.stepper.executor.sampler = device
    ids = host.ask(PROMPTS[:2], SEEDED, speculation="off")
    host.run()
    assert host.of(ids) == expected
    assert device.launches > 10
