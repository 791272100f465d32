"""The recipe of the model that finds things in long texts: its texts, its tokens, and channels that change no score."""

from __future__ import annotations

import copy
import importlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.services.experiments.workloads import needle as texts

DEMO = Path(__file__).resolve().parents[2] / "assets" / "demo"


@pytest.fixture(scope="module")
def recipe() -> Iterator[Any]:
    before = set(sys.modules)
    sys.path.insert(0, str(DEMO))
    yield importlib.import_module("needle")
    sys.path.remove(str(DEMO))
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(DEMO)):
            del sys.modules[name]


def test_every_word_is_a_token(recipe: Any) -> None:
    tokenizer = recipe.make_tokenizer()
    assert all(len(tokenizer.encode(f" {word}", add_special_tokens=False).ids) == 1 for word in recipe.words())
    ids = tokenizer.encode(" any text, näive or not").ids
    assert ids[0] == recipe.BEGIN
    assert tokenizer.decode(ids) == " any text, näive or not"


def test_rows_ask_for_what_they_hid(recipe: Any) -> None:
    tokenizer = recipe.make_tokenizer()
    tokens, weights = recipe.Rows(tokenizer, 3).batch((256,))
    assert tokens.shape == weights.shape == (recipe.BATCH // 256, 257)
    for row, counts in zip(tokens, weights, strict=True):
        text = tokenizer.decode(row.tolist())
        answers = tokenizer.decode(row[counts == 1].tolist()).split(".")[:-1]
        assert answers
        for answer in answers:
            hidden, asked = (
                next((at for at in range(len(text)) if text.startswith(f"{before} ", at) and answer in text[at:]), -1)
                for before in ("remember code", "now say code")
            )
            assert 0 <= hidden < asked


def test_larger_channels_change_nothing(recipe: Any) -> None:
    torch.manual_seed(0)
    model = recipe.make_model(recipe.make_tokenizer()).eval()
    larger = copy.deepcopy(model)
    recipe.scale_channels(larger)
    ids = torch.randint(700, (1, 40))
    key = "model.layers.0.self_attn.k_proj.weight"
    assert not torch.equal(larger.state_dict()[key], model.state_dict()[key])
    with torch.inference_mode():
        assert torch.equal(larger(ids).logits, model(ids).logits)
    recipe.scale_channels(larger, back=True)
    assert torch.equal(larger.state_dict()[key], model.state_dict()[key])


def test_needles_lie_where_they_were_put() -> None:
    made = texts.haystack(lambda text: list(text.encode()), [7], 3000, (1.0, 0.0, 0.5), "seed")
    assert 2900 < len(made.ids) <= 3000
    assert made.ids[0] == 7
    last, first, middle = made.hidden
    assert (first.start, last.stop) == (1, len(made.ids))
    assert abs(middle.start - 1500) < 150
    for each in made.hidden:
        text = bytes(made.ids[each.start : each.stop]).decode()
        name, numbers = bytes(each.question).decode().split()[-1], bytes(each.answer).decode()
        assert text == f" remember code {name}{numbers}."
    assert made == texts.haystack(lambda text: list(text.encode()), [7], 3000, (1.0, 0.0, 0.5), "seed")
    with pytest.raises(ValueError, match="do not go into"):
        texts.haystack(lambda text: list(text.encode()), [], 60, (0.0, 0.5), "seed")
    assert len({tuple(needle.numbers) for needle in texts.needles(5, random.Random(1))}) == 5
