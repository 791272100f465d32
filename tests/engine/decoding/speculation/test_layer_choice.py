"""Which layers draft: what a search finds, what a file says, and what is taken without one."""

from __future__ import annotations

import json
import random
from itertools import combinations
from pathlib import Path

import pytest
import torch

from engine.compute.batch import SequenceRows
from engine.compute.layers.numerics import Numerics
from engine.compute.models.base import CausalLM
from engine.decoding.speculation.proposers.layer_choice import (
    FILE,
    LayerChoice,
    default_choice,
    read_choice,
    save_choice,
)
from engine.services.training import layer_search
from engine.services.training.layer_search import find_layers, predicted_gain, share_of
from tests.engine.decoding.speculation.target_support import EOS, LAYERS, Target, Weights, prompt

TEXTS = [prompt(50, 1), prompt(20, 2), prompt(33, 3)]


def silenced(model: CausalLM, layers: set[int]) -> CausalLM:
    """The model with layers that add nothing to the stream."""
    for name, linear in model.linears():
        parts = name.split(".")
        if parts[0] == "layers" and int(parts[1]) in layers and ("output" in name or "down" in name):
            linear.weight.zero_()  # type: ignore[attr-defined]
    return model


def test_the_layers_that_do_nothing_are_found() -> None:
    model = silenced(Target(quiet=0.7, invariant=False).model, {1, 3, 4})
    found = find_layers(model, TEXTS)
    assert found.choice.skip >= {1, 3, 4}
    assert found.skip_agreement > 0.9
    assert found.choice.notice == ""
    model = silenced(Target(quiet=0.7, invariant=False).model, {2, 3, 4, 5})
    found = find_layers(model, TEXTS)
    assert found.choice.exit_layer == 2
    assert found.exits[1:] == (1.0,) * 4
    assert found.exits[0] < 1.0


def test_exits_and_skips_agree_as_often_as_a_plain_reading_says() -> None:
    """Without samples left out: every place of one short text, each judged by a pass of its own."""
    target, text = Target(quiet=0.7, invariant=False), prompt(60, 5)
    pages, whole = list(range(1, 15)), Target(quiet=0.7, invariant=False)
    wanted = frozenset(range(1, LAYERS + 1))
    out = whole.runner.forward([SequenceRows(text, 0, pages, len(text))], want_hidden=wanted)
    own = out.logits.argmax(-1)
    exits = [float((whole.runner.logits(out.hidden[n]).argmax(-1) == own).float().mean()) for n in range(1, LAYERS)]
    found = find_layers(target.model, [text])
    assert found.exits == pytest.approx(exits)
    agreed = 0
    for place, token in enumerate(text):
        other = Target(quiet=0.7, invariant=False)
        if place:
            other.runner.forward([SequenceRows(text[:place], 0, pages)])
        said = other.runner.forward([SequenceRows([token], place, pages, 1)], skip=found.choice.skip).logits
        agreed += int(said[0].argmax() == own[place])
    assert found.skip_agreement == pytest.approx(agreed / len(text))
    assert 0 < found.skip_agreement < 1


def test_no_set_nearby_is_worth_more() -> None:
    """And of all sets none is worth much more: of six layers they can all be tried."""
    target = Target(quiet=0.5, invariant=False)
    found = find_layers(target.model, TEXTS)
    samples = layer_search._Samples(layer_search.new_runner(target.model, 400, torch.device("cpu")), TEXTS)
    gains = {
        skip: predicted_gain(samples.agreement(skip), share_of(target.model, skip))
        for size in range(LAYERS)
        for skip in map(frozenset, combinations(range(LAYERS), size))
    }
    best = found.choice.skip
    assert found.skip_gain == pytest.approx(gains[best])
    assert found.skip_gain >= max(gain for skip, gain in gains.items() if len(skip ^ best) <= 1)
    assert found.skip_gain >= 0.95 * max(gains.values())


def test_the_search_ends_where_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[frozenset[int]] = []
    judge = layer_search._Samples.agreement

    def counted(self: layer_search._Samples, skip: frozenset[int]) -> float:
        tried.append(skip)
        return judge(self, skip)

    monkeypatch.setattr(layer_search._Samples, "agreement", counted)
    seen: list[float] = []
    find_layers(Target(invariant=False).model, TEXTS, lambda stage, done: seen.append(done))
    assert len(tried) == len(set(tried)), "each set is tried once"
    assert seen == sorted(seen)
    assert seen[-1] < 1.0
    whole = len(tried)
    monkeypatch.setattr(layer_search, "EVALUATIONS", 8)
    tried.clear()
    find_layers(Target(invariant=False).model, TEXTS)
    assert len(tried) <= 8 + LAYERS < whole


def test_long_texts_are_read_in_pieces_from_all_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LONGEST_TEXT", 32), ("MOST_TEXTS", 4), ("SAMPLES", 16)):
        monkeypatch.setattr(layer_search, name, value)
    read: list[list[int]] = []
    judged: list[int] = []
    make = layer_search._Samples.__init__

    def remembered(self: layer_search._Samples, runner, texts) -> None:
        read.extend(texts)
        make(self, runner, texts)
        judged.append(len(self.rows))

    monkeypatch.setattr(layer_search._Samples, "__init__", remembered)
    text = prompt(32 * 8 + 5, 7)
    find_layers(Target(invariant=False).model, [text])
    assert read == [text[32 * at : 32 * at + 32] for at in (0, 2, 4, 6)]
    assert judged == [16]


@pytest.mark.parametrize("texts", [[], [[]]])
def test_without_a_text_there_is_no_search(texts: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="no text"):
        find_layers(Target(invariant=False).model, texts)


@pytest.mark.parametrize(("agreement", "share"), [(0.0, 0.1), (0.5, 0.6), (0.9, 0.25), (1.0, 0.5), (0.99, 1.0)])
def test_the_predicted_gain_is_that_of_many_simulated_chains(agreement: float, share: float) -> None:
    found = predicted_gain(agreement, share)
    assert found >= 1.0
    dice = random.Random(1)
    best = 1.0
    for length in range(1, 17):
        kept = 0
        for _ in range(4000):
            held = 0
            while held < length and dice.random() < min(agreement, 0.99):
                held += 1
            kept += held + 1
        best = max(best, kept / 4000 / (length * share + 1))
    assert found == pytest.approx(best, rel=0.03)


# --- the file -----------------------------------------------------------------------------------------------------


def test_a_choice_is_read_as_it_was_saved(tmp_path: Path) -> None:
    choice = LayerChoice(3, frozenset({2, 5}))
    file = save_choice(choice, tmp_path / "heads", 8, exit_agreement=0.5)
    assert read_choice([tmp_path / "nowhere", tmp_path / "heads", tmp_path], 8) == choice
    assert json.loads(file.read_text())["exit_agreement"] == 0.5
    assert [entry.name for entry in (tmp_path / "heads").iterdir()] == [FILE]
    nearer = LayerChoice(1, frozenset({0}))
    save_choice(nearer, tmp_path / "own", 8)
    assert read_choice([tmp_path / "own", tmp_path / "heads"], 8) == nearer


@pytest.mark.parametrize("layers", [2, 3, 4, 8, 32, 80])
def test_without_a_file_the_default_says_what_it_is(tmp_path: Path, layers: int) -> None:
    choice = read_choice([tmp_path], layers)
    assert choice == default_choice(layers)
    assert choice.exit_layer == max(1, layers // 4)
    assert all(layers // 4 < layer < layers - layers // 4 or layers < 4 for layer in choice.skip)
    assert 0 < len(choice.skip) <= max(1, layers // 4)
    assert f"the first {choice.exit_layer} of {layers} layers" in choice.notice
    assert choice.notice.startswith("No layers were chosen for this model by a search: ")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "speculation.json is not valid JSON (line 1, column 2): early exit drafts"),
        ("[]", "holds no JSON object"),
        ('{"exit_layer": 1, "skip": [], "layers": 9}', "a model of 9 layers"),
        ('{"exit_layer": 8, "skip": [], "layers": 8}', "no exit after layer 8"),
        ('{"exit_layer": true, "skip": [], "layers": 8}', "no exit after layer True"),
        ('{"exit_layer": 1, "skip": [8], "layers": 8}', "not layers: [8]"),
        ('{"exit_layer": 1, "skip": 3, "layers": 8}', "not layers: 3"),
        ('{"exit_layer": 1, "skip": [0,1,2,3,4,5,6,7], "layers": 8}', "skips all"),
        ('{"exit_layer": 1, "skip": [[]], "layers": 8}', "not layers: [[]]"),
    ],
)
def test_a_file_that_cannot_be_meant_is_not_used_and_says_why(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / FILE).write_text(content)
    choice = read_choice([tmp_path], 8)
    assert choice[:2] == default_choice(8)[:2]
    assert reason in choice.notice
    assert str(tmp_path / FILE) in choice.notice


def test_the_support_draws_the_same_weights_each_time() -> None:
    """What the tests above compare are models made twice."""
    first, second = (Weights(Numerics(), 1.0).embedding("", EOS, 4) for _ in range(2))
    assert torch.equal(first, second)
