"""Verdicts on pairs of runs: false ones are rare whatever the noise, real effects are found."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import pytest

from engine.decoding.telemetry import pairs
from engine.decoding.telemetry.pairs import ALPHA, LEAST, MOST, estimate, settled
from engine.protocol import Effect, Metric

TRIES = 2000
Noise = Callable[[random.Random], Iterator[float]]
"""Gives the seconds of one run after the other, as this machine would take for equal work."""


def calm(lot: random.Random) -> Iterator[float]:
    while True:
        yield math.exp(lot.gauss(0, 0.05))


def heavy_tailed(lot: random.Random) -> Iterator[float]:
    """One run in six meets something that takes up to twenty times as long."""
    while True:
        yield math.exp(lot.gauss(0, 0.05)) * (min(20, lot.paretovariate(1)) if lot.random() < 1 / 6 else 1)


def drifting(lot: random.Random) -> Iterator[float]:
    """A processor that grows hot: every run takes 2 % longer than the one before."""
    speed = 1.0
    while True:
        speed *= 1.02
        yield speed * math.exp(lot.gauss(0, 0.03))


def autocorrelated(lot: random.Random) -> Iterator[float]:
    """A neighbour that comes and goes: a slow wave under the noise."""
    level = 0.0
    while True:
        level = 0.95 * level + lot.gauss(0, 0.1)
        yield math.exp(level + lot.gauss(0, 0.02))


def alternating(lot: random.Random) -> Iterator[float]:
    """Every second run is slow, in step with the pairs: the worst case for turns in a fixed order."""
    while True:
        yield math.exp(lot.gauss(0, 0.02))
        yield 1.5 * math.exp(lot.gauss(0, 0.02))


def run_until_settled(noise: Noise, lot: random.Random, gain: float = 1.0) -> Effect:
    """As the engine does it: pairs in random order until the figure is settled."""
    seconds, before, after = noise(lot), [], []
    while True:
        for side in lot.sample((before, after), 2):
            side.append(next(seconds) / (gain if side is after else 1))
        found = estimate(before, after, Metric(lower_is_better=True))
        if len(before) == MOST or (len(before) >= LEAST and settled(found)):
            return found


NOISES = [calm, heavy_tailed, drifting, autocorrelated, alternating]


@pytest.mark.content
@pytest.mark.parametrize("noise", NOISES)
def test_a_setting_compared_with_itself_is_hardly_ever_better_or_worse(noise: Noise) -> None:
    lot = random.Random(11)
    false = sum(run_until_settled(noise, lot).verdict != "none" for _ in range(TRIES))
    assert false <= 0.05 / 2 * TRIES
    assert false / TRIES <= ALPHA + 3 * math.sqrt(ALPHA / TRIES)


@pytest.mark.parametrize("noise", [calm, heavy_tailed, drifting, autocorrelated])
@pytest.mark.parametrize(("gain", "verdict"), [(1.3, "better"), (1 / 1.3, "worse")])
def test_a_real_effect_is_found(noise: Noise, gain: float, verdict: str) -> None:
    lot = random.Random(12)
    found = [run_until_settled(noise, lot, gain) for _ in range(300)]
    assert sum(one.verdict == verdict for one in found) >= 0.9 * len(found)
    inside = sum(one.low <= gain <= one.high for one in found)
    assert inside >= 0.95 * len(found)


@pytest.mark.content
@pytest.mark.always
def test_turns_in_a_fixed_order_would_be_fooled() -> None:
    """Why the order is drawn by lot: the same noise gives a verdict nearly always where it is not."""
    lot = random.Random(13)
    fooled = 0
    for _ in range(50):
        seconds = alternating(lot)
        runs = [next(seconds) for _ in range(2 * LEAST)]
        fooled += estimate(runs[::2], runs[1::2], Metric(lower_is_better=True)).verdict == "worse"
    assert fooled == 50


def test_the_chance_of_any_false_verdict_over_all_looks_is_what_is_promised() -> None:
    """Exactly, by counting the paths of a fair coin that cross a limit anywhere."""
    paths, crossed = [1.0], 0.0
    for n in range(1, MOST + 1):
        paths = [(x + y) / 2 for x, y in zip([0.0, *paths], [*paths, 0.0], strict=True)]
        outside = pairs.limit(n)
        for gains in range(n + 1):
            if outside >= 0 and min(gains, n - gains) <= outside:
                crossed += paths[gains]
                paths[gains] = 0.0
    assert 0.9 * ALPHA < crossed <= ALPHA


def test_too_few_pairs_say_so_and_counted_figures_need_one() -> None:
    assert estimate([1.0] * 7, [2.0] * 7).verdict == "few"
    assert not settled(estimate([1.0] * 7, [2.0] * 7))
    assert estimate([1.0] * 8, [2.0] * 8).verdict == "better"
    assert estimate([1.0], [2.0], Metric(counted=True)).verdict == "better"
    assert estimate([1.0], [2.0], Metric(counted=True, lower_is_better=True)).verdict == "worse"


def test_the_interval_leaves_outliers_out_and_is_read_as_it_is_shown() -> None:
    found = estimate([10.0] * 20, [20.0] * 18 + [1.0, 900.0])
    assert (found.ratio, found.low, found.high, found.verdict) == (2.0, 2.0, 2.0, "better")
    assert estimate([1000.0] * 9, [1004.0] * 9).verdict == "none"  # 1.00 times as fast
    assert settled(estimate([1000.0] * 9, [1004.0] * 9))


def test_nothing_is_divided_by_nothing() -> None:
    found = estimate([0.0] * 9, [5.0] * 9)
    assert (found.ratio, found.verdict, found.before, found.after) == (None, "few", 0.0, 5.0)
    assert not settled(found)
    assert estimate([0.4] * 9, [0.0] * 9, Metric(lower_is_better=True)).verdict == "few"
    assert settled(estimate([0.0] * 9, [0.0] * 9))
    with pytest.raises(ValueError, match="zip"):
        estimate([1.0], [1.0, 2.0])
