"""The Lab's QUEST experiment with the bundled model for it, and its numbers counted another way."""

from __future__ import annotations

import statistics

import pytest

from engine.protocol.lab import LabLine, LabPicture, LabProgress, Strip
from engine.services.client import EngineClient
from engine.services.experiments import laboratory
from engine.services.experiments.experiment import Lab
from engine.services.experiments.lab import quest
from engine.services.experiments.workloads import finding
from tests.engine.services.experiments.lab import finding_reference as reference

TEXT = 2048
LAYERS, DENSE, BYTES = 6, 2, 2 * 6 * 4 * 32 * 2
"""Layers, those that always read everything, and bytes of a token in all of them."""


@pytest.fixture
def client(needle: EngineClient) -> EngineClient:
    return needle


def read_by(index: int, budget: int) -> float:
    """Bytes that the row at this index reads: its layers that choose look at the bounds of each page, too."""
    if budget >= index + 1:
        return BYTES * (index + 1)
    pages = index // 16 + 1
    return BYTES * (DENSE / LAYERS * (index + 1) + (1 - DENSE / LAYERS) * (pages + budget))


@pytest.mark.slow
def test_it_counts_what_is_read_and_what_is_found(client: EngineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quest, "LONGEST", TEXT)
    lines: list[LabLine] = []
    budgets = (1024, 256, 512)
    result = laboratory.run(Lab(client, pairs=1, chosen={"budget": 512}), quest.QuestExperiment(), lines.append)
    assert result.sides == ["all of the text", "1,024 tokens", "256 tokens", "512 tokens"]
    assert isinstance(lines[0], LabProgress)
    assert lines[0].sides == result.sides
    text = finding.text_for(client.model, TEXT, "1 0")
    read, _, found = (figure.runs for figure in result.figures)
    for runs, budget in zip(read, (10**6, *budgets), strict=True):
        # The first token comes with the question, and the last one's record after the answer.
        starts = [len(text.ids) + len(each.question) for each in text.hidden]
        rows = [start + place for start in starts for place in range(quest.ANSWER - 2)]
        assert runs[0] * 1e6 == pytest.approx(statistics.mean(read_by(row, budget) for row in rows), rel=1e-3)
    effect = result.figures[0].effects[-1]
    assert (effect.verdict, effect.ratio) == ("better", pytest.approx(read[0][0] / read[-1][0]))
    assert found[0][0] == reference.share_found(reference.model_of(), text) > 50
    assert client.state()["page_policy"].value == "keep_all"
    strips = [line.picture for line in lines if isinstance(line, LabPicture)]
    assert all(isinstance(strip, Strip) and strip.marked for strip in strips)
    for strip, budget in zip(result.pictures[1:], budgets, strict=True):
        assert isinstance(strip, Strip)
        assert sum(strip.read) == pytest.approx(budget / 16, abs=0.05)
        assert strip.read[-1] == 1
    # The picture is of the step that has all numbers but the last before it.
    asked, *_ = text.hidden[quest.SHOWN :]
    steps = quest.chosen_pages(client.model, [*text.ids, *asked.question], asked.answer[:-1], budgets[-1:])
    *_, (_, chosen) = steps
    heads = sum(each.shape[1] for each in chosen)
    reading = sum(int((each == asked.start // 16).sum()) for each in chosen)
    last = result.pictures[-1]
    assert isinstance(last, Strip)
    assert last.read[asked.start // 16] == pytest.approx(reading / heads, abs=1e-4)


@pytest.mark.slow
def test_the_pages_are_those_of_the_definition(client: EngineClient) -> None:
    text = finding.text_for(client.model, TEXT, "definition")
    asked = text.hidden[quest.SHOWN]
    prompt = [*text.ids, *asked.question]
    budget, theirs = 256, reference.model_of()
    tokens = enumerate(quest.chosen_pages(client.model, prompt, asked.answer[:2], [budget]), start=1)
    for number, (_, chosen) in tokens:
        assert len(chosen) == LAYERS - DENSE
        ids = [*prompt, *asked.answer[:number]]
        defined = reference.chosen_in_layer(theirs, ids, DENSE, budget // 16)
        ours = [set(pages) for pages in chosen[0][0].tolist()]
        # Keys that transformers computes differ in their last bits, and with them the order of pages that score alike.
        assert all(len(one & other) >= budget // 16 - 1 for one, other in zip(ours, defined, strict=True))
