"""What was trained, read by the engine's own heads: the same drafts as those that were measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.compute.attention.registry import AttentionDispatcher
from engine.compute.batch import SequenceRows
from engine.compute.models.heads.base import OUTPUT
from engine.compute.runner.runner import Runner
from engine.decoding.speculation.eagle.files import read_eagle
from engine.decoding.speculation.heads.files import find_heads, open_heads
from engine.decoding.speculation.proposers.layer_choice import read_choice
from engine.services.training.eagle import EagleHead
from engine.services.training.layers import choose_layers
from engine.services.training.medusa import TrainableMedusaHeads
from engine.services.training.target import Opening
from engine.services.training.train_heads import load_heads, train_heads
from tests.engine.services.training.recipe_support import (
    LENGTH,
    held_out_rows,
    open_target,
    plan,
    write_sure_model,
    write_text,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with both kinds of heads beside it."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models")
    write_sure_model(folder / "tiny")
    write_text(folder)
    kinds: tuple[str, ...] = ("medusa", "eagle")
    for kind in kinds:
        chosen = replace(plan(folder / "tiny", folder / "text.txt", folder, kind, steps=20, rows=40), out=None)
        assert train_heads(chosen).folder == folder / "tiny" / "heads" / kind
    return folder


def test_medusa(folder: Path) -> None:
    target = open_target(folder / "tiny")
    place = find_heads("medusa", folder / "tiny", None, None, folder)
    assert place is not None
    files = open_heads(place, target.config, folder)
    heads, trained = files.read(target.model), load_heads(place, target)
    assert isinstance(trained, TrainableMedusaHeads)
    assert heads.num_heads == 2
    config = json.loads((place / "config.json").read_text())
    assert heads.accuracies is not None
    assert [list(row) for row in heads.accuracies] == config["accuracies"]
    states = target.features([row.tokens for row in held_out_rows(target, plan(folder, folder / "text.txt", folder))])
    for head in (0, 1):
        with torch.no_grad():
            mine = target.logits(trained(states, head))
        torch.testing.assert_close(heads.forward(states)[head], mine, rtol=1e-4, atol=1e-3)


def test_eagle(folder: Path) -> None:
    """The first drafts of a text's rows, through the engine's arenas."""
    target = open_target(folder / "tiny")
    place = find_heads("eagle", folder / "tiny", None, None, folder)
    assert place is not None
    files = open_heads(place, target.config, folder)
    head = read_eagle(files.files, files.config, target.model)
    trained = load_heads(place, target)
    assert isinstance(trained, EagleHead)
    tokens = held_out_rows(target, plan(folder, folder / "text.txt", folder, "eagle"))[0].tokens[:LENGTH]
    states = target.features([tokens])
    runner = Runner(head, head.new_store(8), AttentionDispatcher(head.numerics))
    out = runner.forward([SequenceRows(tokens[1:], 0, range(1, 5), len(tokens) - 1)], hidden_in=states[:-1])
    with torch.no_grad():
        mine = trained.passes(states[None, :-1], target.embed(torch.tensor([tokens[1:]])), 1)[0][0]
    torch.testing.assert_close(out.hidden[OUTPUT], mine, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(out.logits, target.logits(mine), rtol=1e-4, atol=1e-3)


def test_layers(folder: Path) -> None:
    """The choice is written where a load looks for it."""
    found, file = choose_layers(str(folder / "tiny"), [folder / "text.txt"], LENGTH, None, Opening("cpu", "float32"))
    assert file.parent == folder / "tiny" / "heads"
    assert read_choice([folder / "tiny" / "heads"], 2) == found.choice
    assert found.choice.exit_layer == 1
