"""The bits that activations have by default: measured with the model, kept by its file, and the person's to change."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.compute.native import library
from engine.library.paths import bundled_model
from engine.loading import activations
from engine.loading.activations import ActivationCost, length_for
from engine.loop.engine import Engine
from engine.protocol import Loaded, Options, OptionSpec, Set, keys
from tests.kit.hosts import load
from tests.kit.listener import Listener

needs_native = pytest.mark.skipif(library.find().library is None, reason="no activation is quantised without it")


def spec(heard: Listener) -> OptionSpec:
    catalogue = next(event.catalogue for event in reversed(heard.others) if isinstance(event, Options))
    return next(entry for entry in catalogue if entry.key == keys.ACTIVATIONS)


def bits(engine: Engine) -> int:
    assert engine.loaded is not None
    return engine.loaded.model.numerics.activations


def notices(heard: Listener) -> list[str]:
    return next(event.card.notices for event in reversed(heard.others) if isinstance(event, Loaded))


@pytest.mark.parametrize(("divergence", "expected"), [(0.0, 8), (0.001, 8), (0.00101, 16), (3.0, 16)])
def test_at_most_a_thousandth_of_a_nat_is_borne(divergence: float, expected: int) -> None:
    cost = ActivationCost(divergence, 0.97, 127)
    assert cost.bits == expected
    assert cost.found[keys.ACTIVATIONS].short == f"auto {expected}-bit, KL {divergence:.4f}"
    assert "97.0" in cost.found[keys.ACTIVATIONS].sentence


def test_the_text_is_shorter_for_larger_models_and_within_their_context() -> None:
    lengths = [length_for(flops, 8192) for flops in (1e6, 1e9, 2e9, 16e9, 140e9)]
    assert lengths == [256, 200, 100, 64, 64]
    assert length_for(1e6, 128) == 128


@needs_native
def test_the_bundled_model_keeps_8_bits_and_is_measured_once(
    heard: Listener, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load(heard, bundled_model().path, dtype="auto", memory=None, context=256)
    assert (bits(engine), spec(heard).value) == (8, "auto")
    assert spec(heard).found.short.startswith("auto 8-bit, KL 0.000")
    assert not any("16 bits" in notice for notice in notices(heard))
    first, found = (home / "data" / "activations.json").read_bytes(), spec(heard).found.sentence

    def never(*_: Any) -> None:
        raise AssertionError("it was measured before")

    monkeypatch.setattr(activations, "_measure", never)
    load(heard, bundled_model().path, dtype="auto", memory=None, context=256)
    assert spec(heard).found.sentence == found
    (home / "data" / "activations.json").write_bytes(b"{damaged")
    monkeypatch.undo()
    monkeypatch.setenv("KVASIR_HOME", str(home))
    load(heard, bundled_model().path, dtype="auto", memory=None, context=256)
    assert (home / "data" / "activations.json").read_bytes() == first, "the same file decides alike"


@pytest.mark.slow
@needs_native
def test_a_model_that_needs_it_has_16_bits_where_the_errors_are_largest(
    heard: Listener, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(heard, bundled_model().path, dtype="auto", memory=None, context=256)
    (kept,) = json.loads((home / "data" / "activations.json").read_text()).values()
    monkeypatch.setattr(activations, "BEARABLE", kept["divergence"] * 0.9)
    (home / "data" / "activations.json").unlink()
    engine = load(heard, bundled_model().path, dtype="auto", memory=None, context=256)
    assert bits(engine) == 8
    numerics, linears = engine.loaded.model.numerics, dict(engine.loaded.model.linears())
    refined = linears["layers.0.down"].refined
    assert refined.sum() == round(spec_share(heard) * len(refined))
    assert any("two passes instead of one" in notice for notice in notices(heard))
    for chosen, expected in (("8bit", False), ("auto", True)):
        engine.submit(Set(key=keys.ACTIVATIONS, value=chosen))
        engine.step()
        assert numerics.refines is expected
    again = load(heard, bundled_model().path, dtype="auto", memory=None, context=256)
    assert torch.equal(dict(again.loaded.model.linears())["layers.0.down"].refined, refined), "kept with the figures"


def spec_share(heard: Listener) -> float:
    """The part of the spans that has 16 bits, as the switch's row says it."""
    found = re.search(r"auto 8-bit, (\d+)\u00a0% 16-bit", spec(heard).found.short)
    assert found is not None, spec(heard).found.short
    return int(found[1]) / 100


@needs_native
def test_what_8_bits_cost_too_much_has_16_unless_the_person_chose(
    heard: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activations, "BEARABLE", 0.0)
    engine = load(heard, bundled_model().path, dtype="auto", memory=None, context=256)
    assert bits(engine) == 16
    (said,) = [notice for notice in notices(heard) if "16 bits" in notice]
    assert "two passes" in said
    for chosen, expected in (("8bit", 8), ("32bit", 32), ("auto", 16), ("8bit", 8)):
        engine.submit(Set(key=keys.ACTIVATIONS, value=chosen))
        engine.step()
        assert bits(engine) == expected
    assert spec(heard).found.short, "the figure is there whatever was chosen"


def test_where_nothing_is_quantised_nothing_is_measured(heard: Listener, home: Path) -> None:
    engine = load(heard, bundled_model().path, dtype="float32", memory=None, context=256)
    assert (bits(engine), spec(heard).found.short) == (32, "")
    assert not (home / "data" / "activations.json").exists()


@needs_native
def test_a_load_goes_on_where_nothing_can_be_measured_or_kept(
    heard: Listener, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("it broke")

    monkeypatch.setattr(activations, "_measure", fail)
    engine = load(heard, bundled_model().path, dtype="auto", memory=None, context=256)
    assert (bits(engine), spec(heard).found.short) == (8, "")
    monkeypatch.undo()
    monkeypatch.setenv("KVASIR_HOME", str(home))
    (home / "data").mkdir(parents=True, exist_ok=True)
    (home / "data" / "activations.json").mkdir()
    engine = load(heard, bundled_model().path, dtype="auto", memory=None, context=256)
    assert (bits(engine), bool(spec(heard).found.short)) == (8, True)
