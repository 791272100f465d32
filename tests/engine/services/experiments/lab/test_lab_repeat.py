"""Whether results of the Lab can be had again: a thing compared with itself, and a difference found five times."""

from __future__ import annotations

import itertools
import random
import re
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

import pytest

from engine.decoding.telemetry.pairs import estimate
from engine.loading.model import LoadedModel
from engine.protocol import Effect, Metric, OptionSpec
from engine.protocol.lab import LabPage
from engine.services.client import EngineClient
from engine.services.experiments.experiment import Found, Lab, Refusal, Run
from engine.services.experiments.pairs import Measured, Pairs, Side
from engine.services.experiments.sentences import headline, timed
from engine.services.experiments.sides import PLAIN, greedy
from engine.services.experiments.workloads.traces import words_of

SECONDS = Measured("seconds", Metric(title="an answer", unit="s", lower_is_better=True))
NOTHING = re.compile(r"About .* in \d+ pairs: (no clear difference|too noisy for a verdict)\.")


class Toy:
    """An experiment whose two sides are given."""

    page = LabPage(
        name="toy", number=0, title="Toy", group="The basics", keys=[], problem="", question="", choices=[], bounds=[],
        lesson="", fails="", sides=["one", "other"], seconds=1,
    )  # fmt: skip

    def __init__(self, one: Callable[[], float], other: Callable[[], float]) -> None:
        self._sides = one, other

    def refuses(self, model: LoadedModel, state: Mapping[str, OptionSpec]) -> Refusal | None:
        return None

    def run(self, lab: Lab) -> Run:
        pairs = Pairs(lab, self.page.name, (SECONDS,))
        yield from pairs.run([self._side(each) for each in self._sides])
        figures = pairs.figures()
        return Found(timed(figures[0].effects[0], "as fast", "as slow"), figures, None, "", [], [], [], {})

    @staticmethod
    def _side(seconds: Callable[[], float]) -> Callable[[], Side]:
        return lambda: {SECONDS.key: seconds()}


def found(toy: Toy, lab: Lab) -> Found:
    running = toy.run(lab)
    while True:
        try:
            next(running)
        except StopIteration as end:
            return cast(Found, end.value)


def noisy(seconds: float, rng: random.Random) -> Callable[[], float]:
    """A machine on which runs take so many seconds, more or less, and now and then another program comes by."""

    def run() -> float:
        return seconds * rng.lognormvariate(0.0, 0.15) * (4.0 if rng.random() < 0.1 else 1.0)

    return run


def drifting(run: Callable[[], float]) -> Callable[[], float]:
    """A machine that grows slower with every run."""
    runs = itertools.count()
    return lambda: run() * (1.0 + 0.02 * next(runs))


def without_model(seed: int) -> Lab:
    return Lab(cast(EngineClient, None), seed)


def test_a_thing_compared_with_itself() -> None:
    """Twenty experiments of each kind of noise, on a machine that grows slower all the while."""
    for kind in range(5):
        nothing = 0
        for seed in range(20):
            same = drifting(noisy(1.0, random.Random(f"{kind} {seed}")))
            result = found(Toy(same, same), without_model(seed))
            verdict = result.figures[0].effects[0].verdict
            assert bool(NOTHING.fullmatch(result.headline)) == (verdict == "none")
            nothing += verdict == "none"
        assert nothing >= 19


def held(effects: list[Effect]) -> list[int]:
    """For each of the results, how many medians of the others its range holds."""
    ratios = [effect.ratio or 0.0 for effect in effects]
    return [
        sum(effect.low <= other <= effect.high for place, other in enumerate(ratios) if place != mine)
        for mine, effect in enumerate(effects)
    ]


def test_a_difference_is_found_five_times() -> None:
    for kind in range(10):
        effects = []
        for seed in range(5):
            rng = random.Random(f"again {kind} {seed}")
            result = found(Toy(noisy(1.6, rng), noisy(1.0, rng)), without_model(seed))
            effects.append(result.figures[0].effects[0])
        assert all(effect.verdict == "better" for effect in effects)
        assert held(effects).count(4) >= 4
        assert statistics.median(effect.ratio or 0.0 for effect in effects) == pytest.approx(1.6, rel=0.1)


def test_ranges_that_hold_nothing_are_not_repeatable() -> None:
    turns = [found(Toy(partial(float, 1.0 + 0.1 * turn), lambda: 1.0), without_model(1)) for turn in range(1, 6)]
    assert held([result.figures[0].effects[0] for result in turns]) == [0] * 5


def test_a_slow_model_is_not_waited_for() -> None:
    """Once twice the budget has gone by no further round begins, and too few are no verdict."""
    lab = Lab(cast(EngineClient, None), budget=0.01)
    result = found(Toy(partial(pause, 0.02), partial(pause, 0.001)), lab)
    assert result.figures[0].effects[0].pairs == 1
    assert (
        result.headline
        == "About 20 times as fast in the one run of each side there was time for. Run it again to be sure."
    )


def pause(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def test_what_is_counted_has_no_noise() -> None:
    metric = Metric(title="pages", counted=True)

    def says(before: float, after: float) -> str:
        return headline(estimate([before], [after], metric), "more", "fewer")

    assert says(3, 3) == says(0, 0) == "The same on both sides."
    assert says(1000, 1001) == "Nearly the same on both sides: 1,000 and 1,001."
    assert says(0, 3) == "No ratio can be given: 0 and 3."
    assert says(2, 3) == "1.50 times more: 3 instead of 2."


def writing(client: EngineClient, tokens: int) -> Callable[[], float]:
    """Seconds of an answer of so many tokens."""
    prompt = words_of(client.model, 1).some(16)
    return lambda: client.answer(prompt, greedy(tokens), PLAIN).timings.total_ms / 1000


@pytest.mark.long
def test_the_bundled_model_compared_with_itself(guide: EngineClient) -> None:
    same = writing(guide, 8)
    verdicts = [found(Toy(same, same), Lab(guide, seed)).figures[0].effects[0].verdict for seed in range(20)]
    assert verdicts.count("none") >= 19


@pytest.mark.long
def test_answers_of_the_bundled_model_three_times_as_long(guide: EngineClient) -> None:
    """A load that comes and goes between the five may move one of the medians out of all other ranges: four in five of
    all medians must lie within them."""
    results = [found(Toy(writing(guide, 48), writing(guide, 16)), Lab(guide, seed)) for seed in range(5)]
    effects = [result.figures[0].effects[0] for result in results]
    assert all(effect.verdict == "better" for effect in effects)
    assert sum(held(effects)) >= 16
