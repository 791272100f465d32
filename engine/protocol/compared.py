"""Verdicts of comparisons, in words: the same in the report, in a terminal, and in the window's panel and Lab."""

from __future__ import annotations

from typing import NamedTuple

from engine.protocol.from_engine import Effect
from engine.protocol.keys import BATCH_INVARIANT
from engine.protocol.lab import LabCompared, LabFigure, LabResult, LabText
from engine.protocol.records import Metric

LEAST_PAIRS = 8
"""Fewer allow no verdict (engine/decoding/telemetry/pairs.py)."""
BUSY = 0.25
"""Share of the processor that other programs may take during a measurement without a word."""
WIDE = 1.5
"""A range whose ends are further apart than by this factor says nothing, not even that there is no difference."""
FAULT = "It was to be the same: that is a fault."
ROUNDING = (
    "Its settings are lossless up to rounding, which the fast kernels do otherwise for other batches; with "
    "batch_invariant on in both columns the text must be the same."
)


class Gain(NamedTuple):
    """Factor, with its interval, by which one side is better than the other, or with ``better`` false worse."""

    better: bool
    ratio: float
    low: float
    high: float


def gain_of(effect: Effect) -> Gain | None:
    """A loss is turned round, so that the figure fits its word; None where nothing can be divided."""
    if effect.ratio is None:
        return None
    if effect.ratio >= 1:
        return Gain(True, effect.ratio, effect.low, effect.high)
    return Gain(False, 1 / effect.ratio, 1 / effect.high, 1 / effect.low)


def decided(effect: Effect) -> bool:
    """Return True if the effect has a verdict: a clear difference, or a count, which has no noise."""
    return effect.metric.counted or effect.verdict in ("better", "worse")


def wide(effect: Effect) -> bool:
    """Return True if the effect says nothing at all, not even that there is no clear difference."""
    return not decided(effect) and (effect.verdict == "few" or effect.high > WIDE * effect.low)


def is_busy(others: float | None) -> bool:
    """Return True if other programs' share of the processor was too large for times to be believed; None: not timed."""
    return others is not None and others > BUSY


def busy(others: float, when: str = "during the runs") -> str:
    """Sentence that warns of other programs' share of the processor; empty where they took little."""
    if not is_busy(others):
        return ""
    return f"This computer was busy: other programs took {100 * others:.0f}\u00a0% of its processor {when}."


def busy_or_quiet(others: float | None) -> str:
    """Sentence about a run in which other programs had this share of the processor; empty where nothing was timed."""
    if others is None:
        return ""
    return busy(others) or f"This computer was quiet: other programs took {100 * others:.0f}\u00a0% of its processor."


def headline_of(result: LabResult) -> str:
    """The headline; of an older result, which names no count where its times could not be told, what it counted."""
    answer = result.answer
    if result.second or result.others is not None or answer is None or decided(answer):
        return result.headline
    counts = [figure.effects[result.told_of] for figure in result.figures if figure.effects]
    count = next((each for each in counts if each.metric.counted), None)
    if count is None:
        return "This older run could not tell. Run it again."
    title = f"{count.metric.title[:1].upper()}{count.metric.title[1:]}"
    return f"{title}: {amount(count.after, count.metric)} instead of {amount(count.before, count.metric)}."


def verdict(effect: Effect) -> str:
    """The gain with the range of its pairs, "1.4× more (1.2–1.6 in 8 pairs)", or that there is no verdict."""
    pairs = f"{effect.pairs} pair{'s' * (effect.pairs != 1)}"
    gain = gain_of(effect)
    if effect.verdict == "none" and (gain is None or not wide(effect)):
        between = spread(effect.low, effect.high)
        return "no clear difference" + (f" ({between} in {pairs})" if between else "")
    if gain is None:
        return "no ratio: one of them is 0"
    if effect.metric.unit == "ms":
        word = "sooner" if gain.better else "later"
    else:
        word = "less" if gain.better == effect.metric.lower_is_better else "more"
    if effect.verdict == "few":
        return f"{times(gain.ratio)}× {word}, but {effect.pairs} of {LEAST_PAIRS} pairs are too few for a verdict"
    between = spread(gain.low, gain.high)
    if effect.verdict == "none":
        return f"about {times(gain.ratio)}× {word} ({between} in {pairs}), too noisy for a verdict"
    return f"{times(gain.ratio)}× {word}" + (f" ({between} in {pairs})" if between else "")


def spread(low: float, high: float) -> str:
    """The range of the pairs; empty for figures that were the same in every pair."""
    return f"{times(low)}–{times(high)}" if low != high else ""


def times(ratio: float) -> str:
    """A ratio in two or three digits."""
    if ratio >= 10:
        return f"{ratio:,.0f}"
    return f"{ratio:.2f}" if ratio < 2 else f"{ratio:.1f}"


def amount(value: float, metric: Metric) -> str:
    """A value with its unit."""
    if metric.unit == "bytes":  # in three digits, or what a cache saves next to the weights would not show
        return f"{value / 1e9:,.3g} GB" if value >= 0.9995e9 else f"{value / 1e6:,.3g} MB"
    digits = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return digits + (f" {metric.unit}" if metric.unit else "")


def cells(figure: LabFigure) -> list[tuple[str, str]]:
    """Each side's value, "–" for one that has none, and what is said of it: its gain over the first side, a remark."""
    metric, gains = figure.effects[0].metric, ["", *map(verdict, figure.effects)]
    return [
        (amount(median, metric), ". ".join(filter(None, (gain, figure.remark(side)))))
        if runs
        else ("–", figure.remark(side))
        for side, (median, runs, gain) in enumerate(zip(figure.medians, figure.runs, gains, strict=True))
    ]


def is_fault(comparison: LabCompared, place: int, text: LabText) -> bool:
    """Return True if a column that must write the first one's text, in batch-invariant arithmetic, wrote another.

    ``place`` counts from the column after the first. A near tie is no fault.
    """
    exact = all(comparison.columns[at].set.get(BATCH_INVARIANT) for at in (0, place + 1))
    return comparison.lossless[place] and exact and not text.same and not text.near_tie


def text_verdict(comparison: LabCompared, place: int, text: LabText) -> str:
    """Verdict on a column's text, with what the column promises; ``place`` as in :func:`is_fault`."""
    if is_fault(comparison, place, text):
        return f"{text.sentence} {FAULT}"
    rounded = comparison.lossless[place] and not text.same and not text.near_tie
    return f"{text.sentence} {ROUNDING}" if rounded else text.sentence


def quality_lines(comparison: LabCompared) -> list[str]:
    """A sentence for each column whose quality was measured."""
    first, *others = comparison.columns
    return [
        f"{column.name}: perplexity {quality.perplexity:.3f} against {quality.first:.3f} of {first.name}, KL "
        f"{quality.kl:.5f} nats, the same likeliest token at {quality.same_top:.1%} of {quality.tokens:,} places."
        for column, quality in zip(others, comparison.quality, strict=True)
        if quality is not None
    ]
