"""The Lab's sliding window: perplexity by transformers where nothing is hidden, pages by arithmetic."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import pytest
import torch
from msgspec import structs

from engine.cache.pool import PAGE_SIZE, pages_for
from engine.library.paths import find_model
from engine.protocol import LoadOptions, keys
from engine.protocol.lab import LabLine, LabPicture, Strip
from engine.services.client import EngineClient
from engine.services.experiments.experiment import Lab
from engine.services.experiments.lab import window
from engine.services.experiments.laboratory import run
from engine.services.experiments.workloads.conversations import conversation
from tests.bench.assisted import dequantised
from tests.engine.services.experiments.lab.conftest import loaded
from tests.kit.specs import refusing

WINDOW = 64
LENGTH = window.WINDOWS * WINDOW


@pytest.fixture(scope="module")
def client() -> Iterator[EngineClient]:
    yield from loaded("", draft="", dtype="float32")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["", "kvasir-hybrid"])
def test_curves_and_pages(client: EngineClient, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.setattr(window, "WINDOW", WINDOW)
    client.load(find_model(model).path, "", LoadOptions(device="cpu", dtype="float32"))
    state, lab = {key: spec.value for key, spec in client.state().items()}, Lab(client, pairs=2)
    lines: list[LabLine] = []
    result = run(lab, window.Window(), lines.append)
    assert {key: spec.value for key, spec in client.state().items()} == state
    pages, losses = result.figures
    assert result.figures[result.asked] == losses
    assert f": {pages.runs[1][0]:.0f} instead of {pages.runs[2][0]:.0f}." in result.headline
    assert [len(side) for side in losses.runs] == [2, 2, 2]
    alone, sinks, full = (series.points for series in result.plots[0].series)
    hides = WINDOW + PAGE_SIZE - 1  # the first token whose row misses a page
    early = [place for place, (at, _) in enumerate(full) if at + LENGTH / window.BINS < hides]
    assert early
    for place in early:
        assert alone[place][1] == pytest.approx(full[place][1], rel=1e-4)
        assert sinks[place][1] == pytest.approx(full[place][1], rel=1e-4)
    assert alone[-1][1] != full[-1][1]
    assert pages.runs[2] == [pages_for(LENGTH)] * 2
    most = pages_for(window.SINKS) + WINDOW // PAGE_SIZE + 2  # and the page that a chunk of the prompt begins
    assert WINDOW // PAGE_SIZE < pages.runs[0][0] == pages.runs[1][0] - 1 < most
    last = [picture.read for picture in result.pictures if isinstance(picture, Strip)]
    assert last[2] == [1.0] * (pages_for(LENGTH) - 1) + [1.0]
    assert [read == 0 for read in last[0]] == [page < (LENGTH - WINDOW) // PAGE_SIZE for page in range(len(last[0]))]
    assert last[1][0] == window.SINKS / PAGE_SIZE
    assert sum(isinstance(line, LabPicture) for line in lines) >= 6


@pytest.mark.slow
def test_perplexity_of_the_full_cache_is_that_of_transformers(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "WINDOW", WINDOW)
    client.load(find_model("").path, "", LoadOptions(device="cpu", dtype="float32"))
    lab = Lab(client, pairs=1)
    result = run(lab, window.Window(), lambda line: None)
    ids = conversation(client.model, LENGTH, lab.random)
    assert client.model.files is not None
    with torch.no_grad():
        logits = dequantised(client.model.files.checkpoint)(torch.tensor([ids])).logits[0]
    nll = torch.nn.functional.cross_entropy(logits[WINDOW:-1], torch.tensor(ids[WINDOW + 1 :]))
    assert result.figures[1].runs[2] == pytest.approx([math.exp(float(nll))], rel=1e-3)


def test_what_cannot_slide_is_refused(client: EngineClient) -> None:
    experiment, state = window.Window(), client.state()
    short = dataclasses.replace(client.model, card=structs.replace(client.model.card, context=100))
    refusal = experiment.refuses(short, state)
    assert refusal is not None
    assert "100" in refusal.why
    fixed = {**state, keys.PAGE_POLICY: refusing(state[keys.PAGE_POLICY], {"window_sinks": "No."})}
    refusal = experiment.refuses(client.model, fixed)
    assert refusal is not None
    assert "sliding window" in refusal.why


@pytest.mark.long
def test_in_full(client: EngineClient) -> None:
    client.load(find_model("").path, "", LoadOptions(device="cpu"))
    result = run(Lab(client), window.Window(), lambda line: None)
    assert result.figures[1].effects[0].pairs == window.TEXTS
    assert result.figures[0].effects[1].verdict == "worse"
