"""Another kind of cache for the model in memory: its weights stay, its arenas are planned and made anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DeepseekV2Config, DeepseekV2ForCausalLM

from engine.cache.stores.kinds import KVKind
from engine.cache.stores.store import KVStore
from engine.compute.batch import SequenceRows
from engine.compute.runner.runner import Runner
from engine.loading import runners
from engine.loading.memory.estimate import kv_bytes_per_token
from engine.loading.model import LoadFailed, LoadModel
from engine.loading.plan import LoadPlan
from engine.loop.commands import AddRequest
from engine.loop.engine import Engine
from engine.protocol import Loaded, LoadOptions, Options, Sampling, Set
from tests.kit.checkpoints import write_small
from tests.kit.hosts import generate, load
from tests.kit.listener import Listener


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_small(folder / "target")
    write_small(folder / "latent")
    torch.manual_seed(0)
    config = DeepseekV2Config(
        vocab_size=27, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=128, kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8,
        v_head_dim=12, q_lora_rank=None, first_k_dense_replace=1, eos_token_id=26, bos_token_id=None,
    )  # fmt: skip
    DeepseekV2ForCausalLM(config).save_pretrained(folder / "latent")
    return folder


@pytest.fixture
def heard() -> Iterator[Listener]:
    torch.set_num_threads(1)
    return Listener()


def value(engine: Engine, key: str = "kv_kind") -> object:
    return next(spec.value for spec in engine.catalogue_state() if spec.key == key)


def switch(engine: Engine, kind: str, key: str = "kv_kind") -> None:
    engine.submit(Set(key=key, value=kind))
    while engine.step():
        pass


@pytest.mark.parametrize("kind", ["int8", "fp8", "int4"])
def test_a_smaller_kind_holds_more_tokens_of_the_same_weights(heard: Listener, models: Path, kind: str) -> None:
    """Beside so many tokens as the budget allows; the weights are not read again."""
    engine = load(heard, models / "target", memory=70e6)
    before = engine.loaded
    assert before is not None
    assert before.kind == KVKind(windowed=True)
    switch(engine, kind)
    after = engine.loaded
    assert after is not None
    assert after.model is before.model
    assert after.kind.name == kind
    assert after.reads.kv_per_token == kv_bytes_per_token(after.model.config, after.model.dtype, KVKind(kind))
    assert isinstance(after.runner, Runner)
    assert after.runner.kv.bytes_per_token() == after.reads.kv_per_token < before.reads.kv_per_token
    assert after.runner.kv.storage_size() == after.fit.kv
    cards = [event for event in heard.others if isinstance(event, Loaded)]
    assert len(cards) == 2
    assert cards[-1].fit == after.fit
    states = [event for event in heard.others if isinstance(event, Options)]
    assert next(spec.value for spec in states[-1].catalogue if spec.key == "kv_kind") == kind
    assert len(generate(heard, engine)) == 20
    assert not heard.errors


def test_more_context_where_memory_sets_it(heard: Listener, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.loading.memory.estimate.LEAST_TOKENS", 16)
    engine = load(heard, models / "target")
    assert engine.loaded is not None
    fit = engine.loaded.fit
    engine = load(heard, models / "target", memory=fit.weights + fit.activations + 5 * 16 * 1 * 2 * 16 * 4)
    assert engine.loaded is not None
    assert (engine.loaded.pages, engine.loaded.card.context) == (5, 64)
    switch(engine, "int4")
    assert engine.loaded.pages == 5 * 64 // 12, "32 numbers of 4 bytes become 32 codes of 4 bits and 4 of 16"
    assert engine.loaded.card.context == 128
    switch(engine, "16bit")
    assert (engine.loaded.pages, engine.loaded.card.context) == (5, 64)


def test_running_answers_end_with_a_sentence(heard: Listener, models: Path) -> None:
    engine = load(heard, models / "target")
    engine.submit(AddRequest("long", [1, 2, 3], Sampling(temperature=0.0, max_tokens=100, ignore_eos=True)))
    for _ in range(4):
        engine.step()
    switch(engine, "int8")
    finished = heard.answers["long", 0].finished
    assert finished is not None
    assert (finished.reason, finished.detail) == (
        "cancelled",
        "The KV cache was changed to int8 with rotated keys, so this answer was stopped.",
    )
    assert [event.rebuilt for event in heard.others if isinstance(event, Loaded)] == [False, True]
    assert len(generate(heard, engine)) == 20


def test_speculation_and_its_draft_go_on_over_packed_pages(heard: Listener, models: Path) -> None:
    engine = load(heard, models / "target", models / "target")
    switch(engine, "int4")
    engine.submit(Set(key="batch_invariant", value=True))
    assert generate(heard, engine, speculation="draft", draft_length=3) == generate(heard, engine)
    draft_tokens = [draft for step in heard.steps for draft in step.drafts]
    assert sum(sum(draft.accepted) for draft in draft_tokens) > 0


def test_bits_of_kivi_mean_nothing_to_another_kind(heard: Listener, models: Path) -> None:
    engine = load(heard, models / "target")
    before = engine.loaded
    switch(engine, "4", "kv_key_bits")
    assert engine.loaded is before
    assert value(engine, "kv_key_bits") == "4"


def test_keys_are_mixed_where_they_share_a_scale(heard: Listener, models: Path) -> None:
    """A change means other pages; pages of one way are never read the other way."""
    engine = load(heard, models / "target")
    switch(engine, "int4")
    layouts, texts = [], []
    for mixed in (True, False, True):
        switch(engine, mixed, "kv_hadamard")
        assert engine.loaded is not None
        assert engine.loaded.kind == KVKind("int4", windowed=True, hadamard=mixed)
        assert isinstance(engine.loaded.runner, Runner)
        assert engine.loaded.runner.kv.hadamard is mixed
        layouts.append(engine.loaded.runner.kv.page_layout)
        texts.append(generate(heard, engine))
    assert layouts[0] == layouts[2] != layouts[1]
    assert texts[0] == texts[2]
    before = engine.loaded
    switch(engine, "kivi")
    switch(engine, False, "kv_hadamard")
    assert engine.loaded is not before
    assert engine.loaded is not None
    assert engine.loaded.kind == KVKind("kivi", windowed=True)


def test_a_wish_before_the_load_is_granted(heard: Listener, models: Path) -> None:
    engine = Engine(heard, device="cpu")
    engine.submit(Set(key="kv_kind", value="int8"))
    engine.submit(LoadModel(str(models / "target"), "", LoadOptions(device="cpu", dtype="float32", memory=300e6)))
    engine.step()
    assert engine.loaded is not None
    assert engine.loaded.kind == KVKind("int8", windowed=True, hadamard=True)
    assert not any("16 bits" in notice for notice in engine.loaded.card.notices)
    assert value(engine) == "int8"


@pytest.mark.parametrize(("model", "kind", "says"), [("latent", "int8", "latents"), ("latent", "kivi", "latents")])
def test_what_cannot_be_served_is_said(heard: Listener, models: Path, model: str, kind: str, says: str) -> None:
    engine = Engine(heard, device="cpu")
    engine.submit(Set(key="kv_kind", value=kind))
    engine.submit(LoadModel(str(models / model), "", LoadOptions(device="cpu", dtype="float32", memory=300e6)))
    engine.step()
    assert engine.loaded is not None
    assert engine.loaded.kind == KVKind()
    assert any("16 bits" in notice and says in notice for notice in engine.loaded.card.notices)
    assert value(engine) == "16bit"
    switch(engine, kind)
    assert [error.code for error in heard.errors] == ["bad_option"]
    assert engine.loaded.kind == KVKind()
    assert len(generate(heard, engine)) == 20


def test_kivi_is_planned_and_made(heard: Listener, models: Path) -> None:
    engine = load(heard, models / "target")
    switch(engine, "kivi")
    switch(engine, "4", "kv_key_bits")
    model = engine.loaded
    assert model is not None
    assert model.kind == KVKind("kivi", 4, 2, windowed=True)
    assert isinstance(model.runner, Runner)
    store = model.runner.kv
    assert store.recent is not None
    assert model.model is not None
    exact = kv_bytes_per_token(model.model.config, torch.float32)
    assert store.recent.storage_size() == model.recent_pages * 16 * exact
    assert store.storage_size() == model.fit.kv
    pages = list(range(1, 9))
    logits = model.runner.forward([SequenceRows([1] * 120, 0, pages, 1, None, (pages,))]).logits
    assert bool(torch.isfinite(logits).all())
    assert not heard.errors
    engine.submit(Set(key="batch_invariant", value=True))
    alone = generate(heard, engine)
    assert len(alone) == 20
    assert generate(heard, engine, speculation="ngram") == alone


def test_a_model_is_known_while_its_cache_is_made_anew(
    heard: Listener, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load(heard, models / "target")
    seen: list[tuple[bool, int]] = []
    real = runners.new_store

    def watched(*args: Any, **kwargs: Any) -> KVStore:
        loaded = engine.loaded
        seen.append((loaded is not None and loaded.files is not None, len(loaded.stores) if loaded else -1))
        return real(*args, **kwargs)

    monkeypatch.setattr(runners, "new_store", watched)
    switch(engine, "int8")
    assert seen
    assert set(seen) == {(True, 0)}
    assert engine.loaded is not None
    assert engine.loaded.stores


@pytest.mark.parametrize("failures", [1, 2])
def test_a_cache_that_finds_no_room_leaves_the_old_kind(
    heard: Listener, models: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    engine = load(heard, models / "target")
    assemble = LoadPlan.assemble
    tried = []

    def fails(self, progress):  # type: ignore[no-untyped-def]
        tried.append(self.place.kind.name)
        if len(tried) <= failures:
            raise LoadFailed("out_of_memory", "Nothing is left.")
        return assemble(self, progress)

    monkeypatch.setattr(LoadPlan, "assemble", fails)
    switch(engine, "int8")
    assert tried == ["int8", "16bit"]
    assert value(engine) == "16bit"
    assert len(heard.errors) == 1
    if failures == 1:
        said = "The KV cache stays 16-bit, because int8 with rotated keys could not be set up"
        assert heard.errors[0].message.startswith(said)
        assert len(generate(heard, engine)) == 20
    else:
        assert engine.loaded is None
        assert "target is no longer loaded" in heard.errors[0].message
