"""The Lab's KV cache: the same answer both ways, and as many tokens computed as arithmetic says."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

import pytest
from msgspec import structs

from engine.cache.policies import KEEP_ALL
from engine.library.paths import find_model
from engine.protocol import LoadOptions, keys
from engine.protocol.lab import Cells, LabLine, LabPicture
from engine.services.client import EngineClient
from engine.services.experiments.experiment import Lab
from engine.services.experiments.lab import kv_cache
from engine.services.experiments.laboratory import run
from engine.services.experiments.same_text import same_text
from engine.services.experiments.sides import greedy
from engine.services.experiments.workloads.conversations import asked
from tests.engine.services.experiments.lab.conftest import loaded


@pytest.fixture(scope="module")
def client() -> Iterator[EngineClient]:
    yield from loaded("", draft="")


@pytest.mark.slow
@pytest.mark.parametrize(("model", "answer"), [("", 48), ("kvasir-hybrid", 16)])
def test_it_counts_every_row(client: EngineClient, monkeypatch: pytest.MonkeyPatch, model: str, answer: int) -> None:
    monkeypatch.setattr(kv_cache, "LENGTHS", (answer,))
    client.load(find_model(model).path, "", LoadOptions(device="cpu"))
    lines: list[LabLine] = []
    result = run(Lab(client, pairs=1), kv_cache.KVCache(), lines.append)
    prompt, asked_for, answer = int(result.settings["prompt"]), answer, int(result.settings["answer"])
    assert 8 <= answer <= asked_for, "no longer than the model has something to say"
    without, kept = (side[0] for side in result.figures[0].runs)
    assert without == sum(prompt + place for place in range(answer))
    assert kept == prompt + answer - 1
    assert result.text is not None
    assert result.text.same, result.text.sentence
    assert result.text.tokens == answer
    alone, cached = result.pictures
    assert isinstance(alone, Cells)
    assert isinstance(cached, Cells)
    assert alone.computed == alone.present == cached.present == [prompt + place for place in range(answer)]
    assert cached.computed == [prompt] + [1] * (answer - 1)
    assert result.headline.endswith(f" times fewer tokens computed: {kept:,.0f} instead of {without:,.0f}.")
    late = result.figures[result.asked].effects[0]
    assert (late.metric.title, late.verdict) == ("a token near the end", "few")
    assert "in the one run of each side that was asked for" in result.second
    assert result.others is not None
    curves = result.plots[0].series
    assert [point[0] for point in curves[0].points] == list(range(prompt + 1, prompt + answer, kv_cache.BIN))
    assert any(isinstance(line, LabPicture) for line in lines)
    assert client.state()[keys.KV_CACHE].value is True


def test_a_short_context_is_refused(client: EngineClient) -> None:
    short = dataclasses.replace(client.model, card=structs.replace(client.model.card, context=32))
    refusal = kv_cache.KVCache().refuses(short, client.state())
    assert refusal is not None
    assert "32" in refusal.why
    assert "longer context" in refusal.instead


def test_a_text_that_differs_is_told_with_how_far_the_tokens_were_apart(client: EngineClient) -> None:
    client.load(find_model("").path, "", LoadOptions(device="cpu"))
    lab = Lab(client)
    prompt = asked(client.model, 1, lab.random)
    answer = client.answer(prompt, greedy(6))
    other = answer._replace(ids=[*answer.ids[:3], 7, *answer.ids[4:]])
    text = same_text([[answer], [other]], lab, [prompt])
    assert not text.same
    assert text.at == 3
    assert not text.near_tie
    assert client.model.readers is not None
    row = client.model.readers(KEEP_ALL).present(len(prompt) + 3)([*prompt, *answer.ids[:3]], 0)[-1]
    one, two = row.double().log_softmax(-1)[[answer.ids[3], 7]].tolist()
    told = re.search(r"log-probabilities were ([\d.]+) apart", text.sentence)
    assert told is not None
    assert float(told[1]) == pytest.approx(one - two, rel=0.02)
    of_three = same_text([[answer], [answer], [other]], lab).texts
    assert of_three[0] == of_three[1] != of_three[2], "one of each side"


@pytest.mark.long
def test_in_full_the_cache_is_sooner(client: EngineClient) -> None:
    client.load(find_model("").path, "", LoadOptions(device="cpu"))
    result = run(Lab(client), kv_cache.KVCache(), lambda line: None)
    assert result.figures[result.asked].effects[0].verdict == "better"
    assert result.text is not None
    assert result.text.same
