"""Skip-join MLFQ and chunked prefill in the Lab with the bundled model, beside counts that were taken otherwise."""

from __future__ import annotations

from itertools import pairwise

import pytest

from engine.decoding.scheduling.policies import mlfq as policy
from engine.decoding.telemetry.records import StepRecord
from engine.protocol import Phase, PhaseChange
from engine.protocol.lab import Doing, LabResult, Lane, Lanes, Span
from engine.services.client import EngineClient
from engine.services.experiments import laboratory
from engine.services.experiments.experiment import Lab
from engine.services.experiments.lab import BY_NAME, chunked, mlfq
from engine.services.experiments.measures.courses import courses, lanes
from tests.engine.decoding.telemetry.steps import step as record_of

STEP = record_of(0.0)
BUSY: tuple[Doing, ...] = ("reading", "writing")


def ran(client: EngineClient, name: str, budget: float, **chosen: int) -> LabResult:
    before = {key: spec.value for key, spec in client.state().items()}
    result = laboratory.run(Lab(client, pairs=1, budget=budget, chosen=chosen), BY_NAME[name], lambda _: None)
    assert {key: spec.value for key, spec in client.state().items()} == before, "switches come back"
    return result


def pictures(result: LabResult) -> list[list[Lane]]:
    """The lanes of each side, whose spans go on without a gap and fit the axis."""
    found = []
    for picture in result.pictures:
        assert isinstance(picture, Lanes)
        for lane in picture.lanes:
            assert all(one.end == two.start for one, two in pairwise(lane.spans))
            assert lane.spans[-1].end <= picture.seconds
        found.append(picture.lanes)
    return found


def most_at_once(lanes: list[Lane]) -> int:
    """How many requests are read or written at the same moment."""
    busy = [span for lane in lanes for span in lane.spans if span.doing in BUSY]
    return max(sum(span.start <= each.start < span.end for span in busy) for each in busy)


def does(lane: Lane) -> set[Doing]:
    return {span.doing for span in lane.spans}


@pytest.mark.slow
def test_queues(guide: EngineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "QUANTUM", 1e-9)  # each step is longer: who had one gives way to who had none
    monkeypatch.setattr(policy, "entry_level", lambda seconds: 0)
    monkeypatch.setattr(mlfq, "LONGEST", 24)
    monkeypatch.setattr(mlfq, "SHORT", 6)
    monkeypatch.setattr(mlfq, "SIMULATED", 20)
    monkeypatch.setattr(mlfq, "LOADS", (50, 400))
    result = ran(guide, "mlfq", 20.0, load=4000, ratio=12)  # short requests come while the long ones are written
    lengths = [int(each) for each in str(result.settings["lengths"]).split(", ")]
    assert mlfq.LONG + mlfq.FEWEST <= len(lengths) <= mlfq.LONG + mlfq.SHORT
    assert lengths[: mlfq.LONG] == [24] * mlfq.LONG, "the longest come first"
    assert max(lengths[mlfq.LONG :]) == 4 * min(lengths) == 8
    assert result.text is not None
    assert (result.text.same, result.text.tokens) == (True, sum(lengths))
    passes = [runs[0] * len(lengths) for runs in result.figures[0].runs]
    assert all(each >= sum(lengths) for each in passes), "each token takes a pass"
    in_order, by_queues = pictures(result)
    for side in (in_order, by_queues):
        assert [int(lane.name.split()[0]) for lane in side] == lengths
        assert most_at_once(side) == mlfq.SLOTS
    assert not any("paused" in does(lane) for lane in in_order), "who runs goes on to its end"
    assert any("paused" in does(lane) for lane in by_queues[: mlfq.LONG]), "a long answer gives way"
    for plot in result.plots:
        assert [series.name for series in plot.series[:2]] == result.sides
        for series in plot.series:
            (_, light), (_, heavy) = series.points
            assert 0 < light < heavy, "at a higher load requests wait longer"


@pytest.mark.slow
def test_a_long_prompt_in_chunks(guide: EngineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "SHORTEST", 140)
    result = ran(guide, "chunked", 0.5)
    prompt, chunk, streams = (int(result.settings[key]) for key in ("prompt", "chunk", "streams"))
    largest, _, _, _, _ = result.figures
    assert prompt > 4 * chunk
    assert largest.runs[:2] == [[prompt], [chunk]]
    assert largest.runs[2][0] <= chunk
    assert result.headline == (
        f"{prompt / chunk:.2f} times fewer tokens in the largest pass: {chunk} instead of {prompt}."
    )
    assert result.text is not None
    assert result.text.same
    for number, side in enumerate(pictures(result)):
        assert len(side) == streams + 1
        (reading,) = (span for span in side[-1].spans if span.doing == "reading")
        spans = [span for lane in side[:-1] for span in lane.spans]
        meanwhile = {span.doing for span in spans if span.start < reading.end and span.end > reading.start}
        assert ("paused" in meanwhile) == (number == 0), "all stands still while a prompt is read whole"
    (plot,) = result.plots
    assert [series.name for series in plot.series] == result.sides
    assert all(gap > 0 for series in plot.series for _, gap in series.points)


@pytest.mark.parametrize("experiment", [mlfq, chunked])
def test_a_short_context_is_refused(guide: EngineClient, monkeypatch: pytest.MonkeyPatch, experiment) -> None:
    monkeypatch.setattr(experiment, "LEAST_CONTEXT", guide.model.card.context + 1)
    name = experiment.__name__.rsplit(".", 1)[1]
    refusal = BY_NAME[name].refuses(guide.model, guide.state())
    assert refusal is not None
    assert refusal.why.startswith(f"The model's context is {guide.model.card.context:,} tokens; a ")


def test_lanes_are_drawn_of_the_phases_of_steps() -> None:
    def step(*changes: tuple[str, Phase, float]) -> StepRecord:
        return STEP._replace(
            phases=tuple(PhaseChange(id=id, answer=0, phase=phase, at=at) for id, phase, at in changes)
        )

    steps = [
        step(("of an earlier run", "ended", 9.0)),
        step(("a", "waiting", 10.0), ("a", "prefill", 10.5)),
        step(("a", "decode", 11.0), ("b", "waiting", 11.25)),
        step(("a", "preempted", 12.0), ("b", "prefill", 12.0)),
        step(("b", "ended", 13.0), ("a", "prefill", 13.0)),
        step(("a", "ended", 15.0)),
    ]
    found = courses(steps)
    assert [list(course.steps) for course in found] == [steps[1:], steps[2:5]]
    assert lanes(found, ["one", "two"]) == Lanes(
        lanes=[
            Lane(
                name="one",
                spans=[
                    Span(start=0.0, end=0.5, doing="waiting"),
                    Span(start=0.5, end=1.0, doing="reading"),
                    Span(start=1.0, end=2.0, doing="writing"),
                    Span(start=2.0, end=3.0, doing="preempted"),
                    Span(start=3.0, end=5.0, doing="reading"),
                ],
            ),
            Lane(
                name="two",
                spans=[Span(start=1.25, end=2.0, doing="waiting"), Span(start=2.0, end=3.0, doing="reading")],
            ),
        ],
        seconds=5.0,
    )
