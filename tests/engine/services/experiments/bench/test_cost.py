"""``kvasir bench --cost``: every approximation on the same texts, with what is known about them in advance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine.library.paths import bundled_model
from engine.protocol import LoadOptions
from engine.services.client import EngineClient, EngineError
from engine.services.experiments.measures import cost
from engine.services.experiments.measures.cost import measure_cost

LENGTH = 768
"""Tokens of a text: more than the tokens that KIVI does not pack."""


@pytest.fixture(scope="module")
def client() -> Iterator[EngineClient]:
    with pytest.MonkeyPatch.context() as patch, EngineClient() as made:
        patch.setattr(torch.cuda, "is_available", lambda: False)
        made.load(bundled_model().path, "", LoadOptions(context=1024))
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, pytest.param(1, marks=pytest.mark.long)])
def test_the_bundled_model_on_text_that_it_was_not_trained_on(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    title, ids = [*cost.held_out_texts(client.model, cost.EVALUATION)][place]
    monkeypatch.setattr(cost, "held_out_texts", lambda *given: [(title, ids[:LENGTH])])
    figures = measure_cost(client)
    assert figures.absent == []
    assert [text.pieces for text in figures.texts] == [1]
    for text in figures.texts:
        rows = {row.setting: row for row in text.rows}
        assert (text.length, text.tokens) == (LENGTH, LENGTH - 1)
        assert all(row.divergence > 0 for row in text.rows)
        # Bits as computed: an int8 number has a share of 16/64 bits, KIVI's one of one bit.
        assert rows["int8"].bits == rows["fp8"].bits == 8.25
        assert (rows["KIVI 2-bit"].bits, rows["KIVI 4-bit"].bits) == (3, 5)
        assert rows["KIVI 4-bit keys, 2-bit values"].bits == rows["KIVI 2-bit keys, 4-bit values"].bits == 4
        # Up to 128 + 31 of the tokens are not packed: their numbers are those of 16-bit keys and values.
        width = 8 * client.model.model.kv_dtype.itemsize
        assert rows["KIVI 2-bit"].bits_in_all == pytest.approx(3 + (width - 3) * (128 + 31) / LENGTH)
        assert rows["int8"].divergence < rows["fp8"].divergence < rows["int4"].divergence
        assert rows["int8 with rotated keys"].divergence < rows["int4 with rotated keys"].divergence
        assert rows["KIVI 4-bit"].divergence < rows["KIVI 2-bit"].divergence
        quest = [rows[f"QUEST, 1/{part} of the text"].divergence for part in (2, 4, 8)]
        assert quest == sorted(quest)
        assert {"the last 64 and the first 4", "the last 64, no sinks"} <= set(rows)


def test_the_texts_are_whole_and_have_the_answers_in_them(client: EngineClient) -> None:
    (talk, answered), (_, asked) = cost.held_out_texts(client.model, cost.EVALUATION)
    assert "answered by the bundled model itself" in talk
    tokenizer = client.model.files.tokenizer
    assert tokenizer is not None
    text = tokenizer.decode(answered, skip_special=True)
    assert "Where does the name Kvasir come from?" in text
    assert "open source under the Apache-2.0 licence" in text
    assert min(len(answered), len(asked)) >= 2048


def test_without_the_texts_it_says_so(client: EngineClient, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="text to measure on is missing"):
        measure_cost(client, tmp_path)
