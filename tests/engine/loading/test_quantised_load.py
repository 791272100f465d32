"""Loading with ``LoadOptions.quantise`` through the engine: the card, what fits, the switches, what stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.compute.layers.linear.dense import Dense
from engine.formats.load import Checkpoint
from engine.formats.quantised import repacked
from engine.library.paths import bundled_model
from engine.loop.engine import Engine
from engine.protocol import Loaded, Loading, Set
from tests.kit.checkpoints import write_small
from tests.kit.hosts import generate, load
from tests.kit.listener import Listener

METHODS = ("nf4", "int4", "int8")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_small(tmp_path / "target")


def spec(engine: Engine, key: str):
    return next(spec for spec in engine.catalogue_state() if spec.key == key)


@pytest.mark.parametrize("method", METHODS)
def test_the_card_and_the_fit_follow(heard: Listener, model: Path, method: str) -> None:
    plain = load(heard, model).loaded
    engine = load(heard, model, quantise=method)
    loaded = engine.loaded
    assert plain is not None
    assert loaded is not None
    titles = {"nf4": "NF4", "int4": "int4, groups of 64", "int8": "int8"}
    assert loaded.card.quantisation == f"{titles[method]}, quantised from fp32 while loading"
    assert plain.card.quantisation == "fp32"
    assert loaded.fit.weights == loaded.model.storage_size() < plain.fit.weights
    assert loaded.fit.weights < 0.75 * plain.fit.weights
    assert {event.stage for event in heard.others if isinstance(event, Loading)} >= {"quantising weights"}
    assert len(generate(heard, engine)) == 20


@pytest.mark.parametrize("method", METHODS)
def test_the_weights_switch_unpacks_the_same_numbers(heard: Listener, model: Path, method: str) -> None:
    engine = load(heard, model, quantise=method)
    assert not spec(engine, "weights").disabled_reason
    assert engine.loaded is not None
    packed = engine.loaded.model
    engine.submit(Set(key="weights", value="16bit"))
    engine.step()
    dense = engine.loaded.model
    assert engine.loaded.card.quantisation.endswith("while loading")
    assert dense is not packed
    for (name, found), (_, expected) in zip(dense.linears(), packed.linears(), strict=True):
        assert isinstance(found, Dense)
        weight = expected.dequantised(torch.float32)
        assert torch.allclose(found.dequantised(torch.float32), weight, rtol=1e-5, atol=1e-8), name
    assert not heard.errors


def test_other_loads_are_not_quantised(heard: Listener, model: Path) -> None:
    engine = load(heard, model)
    assert "not quantised" in spec(engine, "weights").disabled_reason


def test_a_packed_model_stays_and_says_so(heard: Listener) -> None:
    engine = load(heard, bundled_model().path, quantise="nf4")
    card = next(event.card for event in heard.others if isinstance(event, Loaded))
    assert card.quantisation == "GPTQ 4-bit, groups of 64"
    assert any("is packed in its file (GPTQ 4-bit, groups of 64) and stays so" in notice for notice in card.notices)
    assert engine.loaded is not None


def test_a_draft_is_quantised_too(heard: Listener, model: Path, tmp_path: Path) -> None:
    draft = write_small(tmp_path / "draft")
    engine = load(heard, model, draft, quantise="nf4")
    assert engine.loaded is not None
    kinds = {linear.kind for name, linear in engine.loaded.drafting.model.linears() if name != "head"}
    assert kinds == {"table4"}


@pytest.mark.parametrize("method", METHODS)
def test_the_second_load_takes_what_the_first_kept(heard: Listener, model: Path, method: str) -> None:
    answers, seconds = [], []
    for _ in range(2):
        engine = load(heard, model, quantise=method)
        answers.append(generate(heard, engine))
        seconds.append(engine.loaded.card.load_seconds)
    assert answers[0] == answers[1]
    assert "quantising" in seconds[0]
    assert "quantising" not in seconds[1]
    assert "reading kept weights" in seconds[1]


def test_nothing_is_kept_where_it_is_switched_off(
    heard: Listener, model: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVASIR_REPACK_CACHE", "0")
    for _ in range(2):
        engine = load(heard, model, quantise="nf4")
        assert "quantising" in engine.loaded.card.load_seconds
    assert not list(home.glob("**/*.packed"))


def test_what_cannot_be_kept_is_a_note_on_the_card(
    heard: Listener, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repacked, "MOST_BYTES", 100)
    engine = load(heard, model, quantise="nf4")
    assert any("are not kept for the next load" in notice for notice in engine.loaded.card.notices)
    assert len(generate(heard, engine)) == 20


def test_a_home_that_cannot_be_used_is_a_note(
    heard: Listener, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KVASIR_HOME", str(tmp_path / "file" / "home"))
    engine = load(heard, model, quantise="nf4")
    assert any("could not be kept for the next load" in notice for notice in engine.loaded.card.notices)
    assert bundled_model(), "models are found all the same"


def test_what_a_draft_does_is_told_too(
    heard: Listener, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its seconds, that it cannot be kept, and that it is packed already."""
    draft = write_small(tmp_path / "draft")
    with (draft / "model.safetensors").open("r+b") as file:  # other weights than the target's
        file.seek(-8, 2)
        file.write(b"\0" * 8)
    load(heard, model, quantise="nf4")
    engine = load(heard, model, draft, quantise="nf4")
    assert {"quantising", "reading kept weights"} <= engine.loaded.card.load_seconds.keys()
    monkeypatch.setattr(Checkpoint, "packed", property(is_draft))
    engine = load(heard, model, draft, quantise="nf4")
    assert [n for n in engine.loaded.card.notices if n.startswith("draft is packed in its file")]


def is_draft(checkpoint: Checkpoint) -> bool:
    return checkpoint.path.name == "draft"


def test_a_draft_with_damaged_weights_is_left_out(heard: Listener, model: Path, tmp_path: Path) -> None:
    draft = write_small(tmp_path / "draft")
    tensors = load_file(draft / "model.safetensors")
    tensors["model.layers.0.mlp.up_proj.weight"][3, 5] = torch.inf
    save_file(tensors, draft / "model.safetensors", metadata={"format": "pt"})
    engine = load(heard, model, draft, quantise="int4")
    assert "The draft model cannot be used. model.layers.0.mlp.up_proj" in engine.loaded.card.draft_refused
    assert engine.loaded.drafting.model is None
    assert len(generate(heard, engine)) == 20
