"""Batching in the Lab with the bundled model, beside counts that were taken otherwise."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from engine.protocol import Sampling
from engine.protocol.lab import LabLine, LabPicture, LabResult, Lanes
from engine.services.client import Arrival, EngineClient
from engine.services.experiments import laboratory
from engine.services.experiments.experiment import Lab
from engine.services.experiments.lab import BY_NAME, batch_size, batching
from engine.services.experiments.lab.batching import REQUESTS, SLOTS

BUDGET = 0.5


def ran(client: EngineClient, name: str) -> tuple[LabResult, list[LabLine]]:
    told: list[LabLine] = []
    return laboratory.run(Lab(client, pairs=1, budget=BUDGET), BY_NAME[name], told.append), told


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of 2 to 15 tokens."""
    monkeypatch.setattr(batching, "LONGEST", 15)
    monkeypatch.setattr(batching, "SHORTEST", 2)


def most_at_once(lanes: Lanes) -> int:
    """How many requests are read or written at the same moment."""
    busy = [
        (spans[0].start, spans[-1].end)
        for lane in lanes.lanes
        if (spans := [span for span in lane.spans if span.doing in ("reading", "writing")])
    ]
    return max(sum(start <= moment < end for start, end in busy) for moment, _ in busy)


@pytest.mark.usefixtures("brief")
def test_batching(guide: EngineClient) -> None:
    result, told = ran(guide, "batching")
    lengths = [int(each) for each in str(result.settings["lengths"]).split(", ")]
    passes, done, _, _, _ = result.figures
    assert len(lengths) == REQUESTS
    # Alone each token takes a pass; in batches no fewer than the longest of each, or than the slots allow.
    assert passes.runs[0] == [sum(lengths)]
    batches = max(lengths[:SLOTS]) + max(lengths[SLOTS:])
    assert batches <= passes.runs[1][0] < sum(lengths)
    assert max(-(-sum(lengths) // SLOTS), *lengths) <= passes.runs[2][0] < sum(lengths)
    assert result.text is not None
    assert result.text.tokens == sum(lengths)
    one, static, continuous = result.pictures
    assert isinstance(one, Lanes)
    assert isinstance(static, Lanes)
    assert isinstance(continuous, Lanes)
    assert most_at_once(one) == 1
    assert 1 < most_at_once(continuous) <= SLOTS
    for lanes in (one, static, continuous):
        for lane in lanes.lanes:
            assert all(one.end == two.start for one, two in pairwise(lane.spans))
            assert lane.spans[-1].end <= lanes.seconds
    for lane in range(SLOTS):  # the first batch begins when its last request is there, and ends as a whole
        assert static.lanes[lane].spans[-1].end == static.lanes[0].spans[-1].end
        begins = next(span.start for span in static.lanes[lane].spans if span.doing == "reading")
        assert begins >= static.lanes[SLOTS - 1].spans[0].start
    assert sum(span.doing == "idle" for lane in static.lanes for span in lane.spans) >= REQUESTS - 2
    assert {line.side for line in told if isinstance(line, LabPicture)} == {0, 1, 2}
    counted, plot = result.plots
    assert counted.title == "Medians of all runs"
    assert plot.categories == result.sides
    assert [y for _, y in plot.series[0].points] == [done.effects[0].before, *(effect.after for effect in done.effects)]
    assert (plot.series[0].low, plot.series[0].high) == tuple([fit(runs) for runs in done.runs] for fit in (min, max))
    ends = [max(lane.spans[-1].end for lane in lanes.lanes) for lanes in (one, static, continuous)]
    assert done.runs[0][0] == pytest.approx(60 * REQUESTS / ends[0])
    assert {lanes.seconds for lanes in (one, static, continuous)} == {max(ends)}, "one axis for all"


def test_prompts_wait_for_their_time_and_a_free_slot(guide: EngineClient) -> None:
    sampling = Sampling(temperature=0.0, max_tokens=3, ignore_eos=True)
    began = time.perf_counter()
    answers = guide.arriving([Arrival(seconds, [5, 6, 7], sampling) for seconds in (0.0, 0.0, 0.2)], slots=1)
    first, second, third = (answer.submitted - began for answer in answers)
    assert second >= first + answers[0].timings.total_ms / 1000 - 0.001
    assert third >= max(0.2, second + answers[1].timings.total_ms / 1000 - 0.001)
    assert [len(answer.ids) for answer in answers] == [3, 3, 3]
    assert sum(step.generated for step in answers[0].steps) == 9  # the record of the last step is there too


def test_batch_size(guide: EngineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_size, "ANSWER", 6)
    monkeypatch.setattr(batch_size, "SIZES", (1, 2, 4, 8))
    before = {key: spec.value for key, spec in guide.state().items()}
    result, _ = ran(guide, "batch_size")
    assert {key: spec.value for key, spec in guide.state().items()} == before
    assert result.sides == ["one answer", "2 answers", "4 answers", "8 answers"]
    read, rate, step = (figure.medians for figure in result.figures)
    assert 6 < read[0] / read[3] <= 8, "the weights are read once for all, keys and values are not"
    assert rate == pytest.approx([1e3 * size / each for size, each in zip((1, 2, 4, 8), step, strict=True)])
    assert result.settings["computed"] == result.settings["largest"]
    curve, largest = result.plots[-2:]
    assert curve.series[0].points == list(zip(rate, step, strict=True))
    assert largest.categories == ["computed", "measured"]
    assert result.answer is not None
    assert result.answer.before == rate[0]
    assert result.told_of == 2, "eight answers, as the question has it"
