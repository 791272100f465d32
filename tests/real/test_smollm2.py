"""A model that others trained and packed, SmolLM2-135M in Q4_1: loaded and answered as it is served by default."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.cache.policies import KeepAll
from engine.cache.stores.kinds import KVKind
from engine.compute.runner.perplexity import reader, score, scored
from engine.decoding.options import EngineOptions
from engine.loading import activations
from engine.loading.loader import CheckpointLoader
from engine.loading.model import LoadModel
from engine.loading.runners import new_runner, quantises_activations, readers_of
from engine.protocol import LoadOptions, Sampling, keys
from engine.services.client import EngineClient
from tests.real.smollm2 import ANSWER, QUESTION, unpacked


@pytest.fixture(scope="module")
def client(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineClient]:
    with pytest.MonkeyPatch.context() as patch, EngineClient() as made:
        patch.setenv("KVASIR_HOME", str(tmp_path_factory.mktemp("home")))
        made.load(str(smollm2), "", LoadOptions(device="cpu", context=1024))
        yield made


def test_the_first_answer_is_right_as_it_is_served_by_default(client: EngineClient) -> None:
    loaded = client.model
    answer = client.answer(loaded.encode_prompt(QUESTION), Sampling(temperature=0.0, max_tokens=24))
    assert loaded.files is not None
    assert loaded.files.tokenizer.decode(answer.ids, skip_special=True) == ANSWER


def test_8_bits_are_found_too_few_in_some_places_and_the_person_decides_all_the_same(client: EngineClient) -> None:
    loaded, numerics = client.model, client.model.model.numerics
    if not quantises_activations(loaded.model):
        pytest.skip("no native code here, so no activation is quantised")
    spec = client.state()[keys.ACTIVATIONS]
    assert (spec.value, numerics.activations, numerics.refines) == ("auto", 8, True)
    assert "16-bit, KL 0.0" in spec.found.short
    assert any("Activations have 16 bits in" in notice for notice in loaded.card.notices)
    for chosen, bits in (("8bit", 8), ("32bit", 32), ("auto", 8)):
        client.set(keys.ACTIVATIONS, chosen)
        assert (numerics.activations, numerics.refines) == (bits, chosen == "auto")


@pytest.mark.slow
def test_quality_is_what_the_documentation_says(client: EngineClient) -> None:
    """KL in nats over the later half of 256 tokens of conversation; docs/measurements.md has it over more of them."""
    loaded = client.model
    assert loaded.model is not None
    ids = loaded.encode_prompt(activations.conversation())[:256]
    costs: dict[str, float] = {}
    ways = ("auto", "auto", KVKind()), ("16-bit", "16bit", KVKind()), ("int4", "32bit", KVKind("int4", hadamard=True))
    for name, bits, kind in ways:
        client.set(keys.ACTIVATIONS, bits)
        exact, present, _ = readers_of(loaded.model, loaded.device, kind)(KeepAll())
        costs[name] = scored(score(ids, exact, present, loaded.card.vocabulary, name, skipped=128)).divergence
    client.set(keys.ACTIVATIONS, "auto")
    assert costs["16-bit"] < activations.BEARABLE
    assert costs["auto"] <= activations.BEARABLE
    assert 0.01 < costs["int4"] < 0.08


@pytest.mark.slow
def test_logits_are_those_of_transformers(smollm2: Path) -> None:
    torch.set_num_threads(1)
    options = LoadOptions(device="cpu", dtype="float32", context=64)
    with torch.inference_mode():
        opened = CheckpointLoader("cpu").open(LoadModel(str(smollm2), "", options), EngineOptions(), None)
        opened.read(lambda stage, done: None, lambda: False)
        model = opened.target.model
        assert model is not None
        ids = opened.target.files.tokenizer.encode("The capital of France is Paris, and that of Italy is")
        ours = reader(new_runner(model, 5, opened.place.device))(ids, 0)
        expected = unpacked(smollm2)(torch.tensor([ids])).logits[0]
    assert opened.target.cost is None, "float32 quantises no activation"
    assert float((ours - expected).abs().max()) <= 1e-4
