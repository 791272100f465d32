"""The experiments that are timed, beside two busy processes: times recorded there, told as what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
from msgspec import structs

from app.lab import words
from engine.decoding.telemetry.pairs import estimate
from engine.protocol import Effect, Metric, keys
from engine.protocol.compared import headline_of
from engine.protocol.lab import LabProgress, LabResult, LabText
from engine.services.client import Answer, EngineClient
from engine.services.experiments import laboratory
from engine.services.experiments import pairs as pairing
from engine.services.experiments.experiment import Lab, RunEvent
from engine.services.experiments.lab import BY_NAME, batching, chunked, kv_cache, mlfq, prefixes
from engine.services.experiments.lab.speculation import UNTOLD
from engine.services.experiments.pairs import LONGER_BUSY, Measured, Pairs, Side
from engine.services.experiments.same_text import exact_text
from engine.services.experiments.sentences import headline, timed
from engine.services.experiments.sides import greedy
from engine.services.experiments.workloads import drafting
from tests.app.fake_lab import result as older

OTHERS = 0.91
RECORDED: dict[str, list[list[Side]]] = {
    "kv_cache": [
        [
            {"late_ms": late, "early_ms": early, "computed": 6288.0, "speed": 20.0}
            for late, early in zip((129, 44, 43, 45, 31, 29, 44.5, 70), (90, 31, 60, 22, 25, 41, 20, 33), strict=True)
        ],
        [
            {"late_ms": late, "early_ms": early, "computed": 113.0, "speed": 90.0}
            for late, early in zip((7.26, 8.1, 116, 7.2, 7.1, 7.22, 7, 40), (8, 7, 60, 6, 9, 7, 8, 7), strict=True)
        ],
    ],
    "prefixes": [
        [{"first_ms": 83030.0, "computed": 27300.0, "pages": 87.0}],
        [{"first_ms": 1409.0, "computed": 2451.0, "pages": 36.0}],
    ],
    "batching": [
        [{"done": 75.0, "first": 2.188, "complete": 2.807, "passes": 111.0, "pass": 47.98}],
        [{"done": 127.4, "first": 1.358, "complete": 1.827, "passes": 57.0, "pass": 32.57}],
        [{"done": 131.1, "first": 0.6949, "complete": 1.836, "passes": 43.0, "pass": 35.77}],
    ],
    "chunked": [
        [{"largest": 991.0, "worst": 713.3, "usual": 713.3, "first": 0.71, "speed": 187.0}],
        [{"largest": 123.0, "worst": 125.6, "usual": 55.3, "first": 0.56, "speed": 192.0}],
        [{"largest": 79.0, "worst": 70.6, "usual": 30.4, "first": 0.81, "speed": 176.0}],
    ],
    "mlfq": [
        [{"passes": 324.4, "complete": 3.844, "first": 3.108, "slowest": 4.13}],
        [{"passes": 151.1, "complete": 1.596, "first": 0.44, "slowest": 4.497}],
    ],
    "speculation": [
        [
            {"edit speed": 21.88, "talk speed": 24.28, "noise speed": 10.11}
            | {"edit per step": 1.0, "talk per step": 1.0, "noise per step": 1.0}
        ],
        [
            {"edit speed": 73.52, "talk speed": 58.65, "noise speed": 1.982}
            | {"edit per step": 5.0, "talk per step": 5.0, "noise per step": 1.154}
        ],
    ],
}
HEADLINES = {
    "kv_cache": "55.6 times fewer tokens computed: 113 instead of 6,288.",
    "prefixes": "11.1 times fewer prompt tokens computed: 2,451 instead of 27,300.",
    "batching": "2.58 times fewer passes through the model: 43 instead of 111.",
    "chunked": "8.06 times fewer tokens in the largest pass: 123 instead of 991.",
    "mlfq": "2.15 times fewer passes until an answer is done: 151 instead of 324.",
    "speculation": "5.00 tokens a step instead of 1.00 while a text is edited.",
}
SECONDS = {
    "kv_cache": "About 4.9 times sooner for each token near the end, from 0.37 to 18 in 8 pairs: too noisy for a "
    "verdict.",
    "prefixes": "About 59 times sooner to the first word",
    "batching": "About 1.75 times as many requests done in a minute",
    "chunked": "About 5.7 times less to wait for a word at the worst",
    "mlfq": "About 2.4 times sooner done, in the mean",
    "speculation": "About 3.4 times as fast while a text is edited",
}
ONE = " in the one run of each side there was time for. Run it again to be sure."


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every side answers once, briefly; its figures are those that were recorded."""

    def run(pairs: Pairs, sides: Sequence[Callable[[], Side]], picture: object = None) -> Iterator[RunEvent]:
        for side in sides:
            side()
        pairs.runs, pairs.others = RECORDED[pairs._name], OTHERS
        return iter(())

    monkeypatch.setattr(Pairs, "run", run)
    for where, name, value in (
        (kv_cache, "LENGTHS", (16,)), (prefixes, "LONGEST", 120), (batching, "LONGEST", 15), (batching, "SHORTEST", 2),
        (drafting, "SHORTEST", 8), (mlfq, "SIMULATED", 10), (chunked, "SHORTEST", 40), (chunked, "AFTER", 4),
    ):  # fmt: skip
        monkeypatch.setattr(where, name, value)
    monkeypatch.setattr(kv_cache._Written, "series", lambda side, name: kv_cache.Series(name=name, points=[]))


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("name", RECORDED)
def test_nothing_false_is_said(guide: EngineClient, name: str) -> None:
    told = laboratory.run(Lab(guide, budget=0.1), BY_NAME[name], lambda _: None)
    page = BY_NAME[name].page
    assert told.headline == HEADLINES[name]
    assert told.second == SECONDS[name] + ("" if told.second.endswith("verdict.") else ONE)
    for choice in range(len(page.choices)):
        said = words.prediction(page, choice, told)
        assert said.tone == "mute", "what cannot be told bears no prediction out"
        assert said.text == (
            f"You said “{page.choices[choice]}”. This run cannot tell: other programs took 91\u00a0% of the processor. "
            "Run it again when this computer is quiet."
        )
    assert words.quiet(told).tone == "warn"
    assert not words.clear(told), "its tick is grey"
    every = " ".join([told.headline, told.second, told.lesson, *told.why])
    assert "no clear difference" not in every.lower()
    assert "not at all" not in every
    assert name not in ("batching", "chunked", "mlfq") or "could not be told here" in told.lesson
    assert name != "speculation" or (UNTOLD in told.why and not any("break-even" in str(p.series) for p in told.plots))
    assert name != "kv_cache" or len(told.why) == 1, "how a token's time grew is not known"


def test_medians_come_first_and_ranges_say_what_they_can() -> None:
    def says(pairs: int, low: float, high: float, asked: int = 0) -> str:
        ratios = [low if at % 2 else high for at in range(pairs)]
        return timed(estimate(ratios, [1.0] * pairs, Metric(lower_is_better=True)), "sooner", "later", asked)

    assert says(1, 58.92, 58.92) == f"About 59 times sooner{ONE}"
    assert "that was asked for" in says(1, 2.0, 2.0, asked=1)
    assert says(2, 2.0, 4.0).endswith("from 2.0 to 4.0 in 2 pairs: too few for a verdict. Run it again to be sure.")
    assert says(8, 0.97, 1.05) == "About 1.01 times sooner, from 0.97 to 1.05 in 8 pairs: no clear difference."
    assert says(8, 0.4, 18.0) == "About 9.2 times sooner, from 0.40 to 18 in 8 pairs: too noisy for a verdict."
    assert says(8, 2.0, 4.0) == "3.0 times sooner (from 2.0 to 4.0 in 8 pairs)."
    assert says(8, 0.25, 0.5) == "2.7 times later (from 2.0 to 4.0 in 8 pairs)."
    count = Metric(title="tokens", counted=True, lower_is_better=True)
    assert headline(estimate([6288], [113], count), "fewer", "more") == "55.6 times fewer: 113 instead of 6,288."


@pytest.mark.parametrize(("others", "pairs", "sentence"), [(0.9, 24, LONGER_BUSY), (0.0, 8, "")])
def test_it_runs_on_while_the_range_is_wide_and_no_longer_than_that(
    monkeypatch: pytest.MonkeyPatch, others: float, pairs: int, sentence: str
) -> None:
    """A run of both sides takes ten seconds of a clock of its own."""
    clock = [0.0]
    monkeypatch.setattr(pairing.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(pairing.OtherPrograms, "share", lambda self: others)
    metric = Measured("ms", Metric(unit="ms", lower_is_better=True))
    ratios = iter([1.0] + [0.4, 18.0] * 99)

    def slow() -> Side:
        clock[0] += 10.0
        return {"ms": next(ratios)}

    measured = Pairs(Lab(None, budget=40.0), "toy", [metric])  # type: ignore[arg-type]
    told = list(measured.run([slow, lambda: {"ms": 1.0}]))
    assert len(measured.runs[0]) == pairs
    progress = [each for each in told if isinstance(each, LabProgress)]
    assert [each.done for each in progress] == sorted(each.done for each in progress)
    assert progress[-1].done == progress[-1].total
    assert progress[-2].sentence == sentence


def test_texts_that_rounding_parts_are_written_again_where_nothing_is_rounded_otherwise(guide: EngineClient) -> None:
    state: list[bool] = []
    sample = guide.answer([5, 6, 7], greedy(3))

    def write() -> list[Answer]:
        state.append(guide.state()[keys.BATCH_INVARIANT].value is True)
        return [sample]

    def text(other: Answer) -> LabText:
        running = exact_text("toy", Lab(guide), [write, write], [[sample], [other]], [[5, 6, 7]])
        try:
            while True:
                next(running)
        except StopIteration as end:
            return end.value

    assert text(sample).sentence == "The same text: identical, 3 tokens."
    assert state == []
    parted = text(sample._replace(ids=[sample.ids[0], 9, 9]))
    assert state == [True, True]
    assert guide.state()[keys.BATCH_INVARIANT].value is False
    assert parted.same
    assert parted.sentence.startswith("The same text: identical, 3 tokens, in batch-invariant arithmetic")
    assert "With the fast kernels, which round otherwise" in parted.sentence
    assert "the texts differ from token 2 on" in parted.sentence


def of_older_version(effect: Effect) -> LabResult:
    """As it was kept before results had a second sentence."""
    kept = older("prefixes")
    first = structs.replace(kept.figures[0], effects=[effect])
    said = "No clear difference here: too few pairs to tell (58.92 to 58.92 times in 1 pair)."
    return structs.replace(kept, headline=said, second="", others=None, figures=[first, kept.figures[1]])


def test_an_older_result_names_what_it_counted() -> None:
    effect = older("prefixes").figures[0].effects[0]
    few = of_older_version(structs.replace(effect, verdict="few"))
    assert headline_of(few) == "Prompt tokens computed: 1,413 instead of 14,844."
    assert headline_of(of_older_version(effect)).startswith("No clear"), "what it says stays where it had a verdict"
    assert headline_of(older("prefixes")) == older("prefixes").headline
