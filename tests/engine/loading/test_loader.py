"""Real folders through the real loader: what fits, what is refused and with which words, what a draft must be."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from engine.compute.batch import ForwardOutput
from engine.compute.models.families.llama import Model as Llama
from engine.compute.native import shipped
from engine.compute.runner.runner import Runner
from engine.loading.model import LoadModel
from engine.loop.commands import AddRequest
from engine.loop.engine import Engine
from engine.protocol import Loaded, Loading, LoadOptions, Sampling, Set, keys
from tests.kit.checkpoints import write_small
from tests.kit.hosts import generate, load
from tests.kit.listener import Listener


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_small(folder / "target")
    write_small(folder / "padded", padding=7)
    write_small(folder / "other", letters="abcdefgh")
    return folder


def test_a_model_serves_after_its_load(heard: Listener, models: Path) -> None:
    engine = load(heard, models / "target")
    card = next(event.card for event in heard.others if isinstance(event, Loaded))
    assert (card.name, card.context, card.vocabulary, card.draft) == ("target", 128, 27, "")
    stages = [event for event in heard.others if isinstance(event, Loading)]
    assert [event.fraction for event in stages] == sorted(event.fraction for event in stages)
    assert len(generate(heard, engine)) == 20


def test_a_float32_model_keeps_keys_and_values_in_16_bits_unless_float32_is_asked_for(
    heard: Listener, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.loading.memory.probe.cpu_has_bfloat16", lambda: False)
    sizes = {}
    for asked, kept in (("auto", torch.bfloat16), ("float32", torch.float32)):
        engine = load(heard, models / "target", models / "padded", dtype=asked)
        loaded = engine.loaded
        assert loaded is not None
        assert loaded.model is not None
        assert loaded.model.dtype == torch.float32
        assert [store.view(0).k.dtype for store in loaded.stores] == [kept, kept]
        assert sum(store.storage_size() for store in loaded.stores) == loaded.fit.kv
        assert loaded.reads.kv_per_token == loaded.stores[0].bytes_per_token()
        sizes[asked] = loaded.reads.kv_per_token
        assert len(generate(heard, engine, speculation="draft", draft_length=3)) == 20
    assert not heard.errors
    assert 2 * sizes["auto"] == sizes["float32"]


def test_what_a_load_runs_goes_by_the_switches_of_the_user(
    heard: Listener, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, seen = Engine(heard, device="cpu"), list[bool]()
    forward = Runner.forward

    def spied(self: Runner, *args: Any, **options: Any) -> ForwardOutput:
        seen.append(cast(Llama, self.model).numerics.graphs)
        return forward(self, *args, **options)

    monkeypatch.setattr(Runner, "forward", spied)
    engine._options.values[keys.CUDA_GRAPHS] = False
    settings = LoadOptions(device="cpu", dtype="float32", memory=300e6)
    engine.submit(LoadModel(str(models / "target"), "", settings))
    engine.step()
    assert engine.loaded is not None
    assert not seen[-1], "nothing may be captured by a load where graphs are switched off"


def test_a_load_tells_which_kernels_it_has_compiled(
    heard: Listener, models: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the reason that the package has none for them; the same model loads in silence where all were there."""
    unknown = shipped.Kernels(tmp_path, "3.6.0", 87)
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    monkeypatch.setattr(shipped, "here", lambda: unknown)
    step = Runner.forward

    def compiling(self: Runner, *args: Any, **options: Any) -> ForwardOutput:
        shipped._count(compiled=1)
        return step(self, *args, **options)

    engine = load(heard, models / "target")
    assert engine.loaded is not None
    assert not [text for text in engine.loaded.card.notices if "kernels were compiled" in text]
    monkeypatch.setattr(Runner, "forward", compiling)
    engine = load(heard, models / "target")
    assert engine.loaded is not None
    told = [text for text in engine.loaded.card.notices if "kernels were compiled" in text]
    assert len(told) == 1
    assert "the package has none for Triton 3.6.0" in told[0]


def test_a_draft_with_a_padded_vocabulary_serves(heard: Listener, models: Path) -> None:
    engine = load(heard, models / "target", models / "padded")
    assert engine.loaded is not None
    assert engine.loaded.card.draft == "padded"
    engine.submit(Set(key="batch_invariant", value=True))
    assert generate(heard, engine, speculation="draft", draft_length=3) == generate(heard, engine)
    assert not heard.errors
    draft_tokens = [draft for step in heard.steps for draft in step.drafts]
    assert sum(sum(draft.proposed) for draft in draft_tokens) > 0


def test_a_draft_with_another_vocabulary_is_left_out_and_the_card_says_why(heard: Listener, models: Path) -> None:
    engine = load(heard, models / "target", models / "other")
    assert engine.loaded is not None
    assert engine.loaded.card.draft == ""
    assert "their vocabularies have 27 and 9 entries" in engine.loaded.card.draft_refused
    speculation = next(spec for spec in engine.catalogue_state() if spec.key == "speculation")
    assert "draft" in speculation.disabled_choices


def test_a_missing_draft_is_left_out_and_the_card_says_why(heard: Listener, models: Path) -> None:
    engine = load(heard, models / "target", models / "nowhere")
    assert engine.loaded is not None
    assert engine.loaded.card.draft_refused.startswith("The draft model cannot be used. There is no model at")


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "bad_model"),
        (lambda folder: (folder / "config.json").write_text("{"), "bad_model"),
        (lambda folder: truncate(folder / "model.safetensors"), "bad_model"),
    ],
)
def test_damaged_folders_are_refused_with_a_sentence(
    heard: Listener, models: Path, tmp_path: Path, damage: object, code: str
) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(models / "target", folder)
    damage(folder)  # type: ignore[operator]
    engine = load(heard, folder)
    assert engine.loaded is None
    assert [error.code for error in heard.errors] == [code]
    assert heard.errors[0].message.endswith(".")


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def test_a_budget_that_is_too_small_is_said_in_numbers(heard: Listener, models: Path) -> None:
    engine = load(heard, models / "target", memory=2e6)
    assert engine.loaded is None
    assert heard.errors[0].code == "out_of_memory"
    assert "does not fit" in heard.errors[0].message


def test_a_context_that_was_asked_for_limits_answers(heard: Listener, models: Path) -> None:
    engine = load(heard, models / "target", context=40)
    engine.submit(AddRequest("a", [1] * 10, Sampling(temperature=0.0, ignore_eos=True)))
    engine.submit(AddRequest("b", [1] * 40))
    while engine.step():
        pass
    answer = heard.answers["a", 0]
    assert (answer.reason, len(answer.tokens)) == ("context", 30)
    assert heard.errors[0].code == "prompt_too_long"


def test_no_gpu_is_said(heard: Listener, models: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    load(heard, models / "target", device="cuda")
    assert heard.errors[0].code == "no_device"
