"""Verdicts of comparisons, in words: the same in the report, in a terminal, and in the window's panel and Lab.

The window gives its own :class:`Wording`, which translate; assets/languages/update.py finds the texts here.
"""

from __future__ import annotations

from collections.abc import Callable
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


def _written(text: str, /, **values: object) -> str:
    return text.format(**values)


def _counted(one: str, many: str, n: int, /, **values: object) -> str:
    return (one if n == 1 else many).format(n=n, **values)


class Wording(NamedTuple):
    """A language: texts with their values, texts of one and of several things, texts of the engine's records, and
    numbers, as ``app.language`` has them. English by itself."""

    tr: Callable[..., str] = _written
    plural: Callable[..., str] = _counted
    known: Callable[[str], str] = str
    figure: Callable[[float, str], str] = format


ENGLISH = Wording()


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


def busy_or_quiet(others: float | None, words: Wording = ENGLISH) -> str:
    """Sentence about a run in which other programs had this share of the processor; empty where nothing was timed."""
    if others is None:
        return ""
    share = 100 * others
    if is_busy(others):
        return words.tr(
            "This computer was busy: other programs took {share:.0f}\u00a0% of its processor during the runs.",
            share=share,
        )
    return words.tr("This computer was quiet: other programs took {share:.0f}\u00a0% of its processor.", share=share)


def headline_of(result: LabResult, words: Wording = ENGLISH) -> str:
    """The headline; of an older result, which names no count where its times could not be told, what it counted."""
    answer = result.answer
    if result.second or result.others is not None or answer is None or decided(answer):
        return result.headline
    counts = [figure.effects[result.told_of] for figure in result.figures if figure.effects]
    count = next((each for each in counts if each.metric.counted), None)
    if count is None:
        return words.tr("This older run could not tell. Run it again.")
    title = words.known(count.metric.title)
    return words.tr(
        "{figure}: {after} instead of {before}.",
        figure=f"{title[:1].upper()}{title[1:]}",
        after=amount(count.after, count.metric, words),
        before=amount(count.before, count.metric, words),
    )


def verdict(effect: Effect, words: Wording = ENGLISH) -> str:
    """The gain with the range of its pairs, "1.4× more (1.2–1.6 in 8 pairs)", or that there is no verdict."""
    gain = gain_of(effect)
    if effect.verdict == "none" and (gain is None or not wide(effect)):
        said = words.tr("no clear difference")
        return _in_pairs(said, spread(effect.low, effect.high, words), effect.pairs, words)
    if gain is None:
        return words.tr("no ratio: one of them is 0")
    said = _factor(gain, effect.metric, words)
    if effect.verdict == "few":
        return words.plural(
            "{gain}, but 1 of {least} pairs is too few for a verdict",
            "{gain}, but {n} of {least} pairs are too few for a verdict",
            effect.pairs,
            gain=said,
            least=LEAST_PAIRS,
        )
    between = spread(gain.low, gain.high, words)
    if effect.verdict == "none":
        return words.plural(
            "about {gain} ({between} in 1 pair), too noisy for a verdict",
            "about {gain} ({between} in {n} pairs), too noisy for a verdict",
            effect.pairs,
            gain=said,
            between=between,
        )
    return _in_pairs(said, between, effect.pairs, words)


def _in_pairs(said: str, between: str, pairs: int, words: Wording) -> str:
    if not between:
        return said
    return words.plural(
        "{verdict} ({between} in 1 pair)", "{verdict} ({between} in {n} pairs)", pairs, verdict=said, between=between
    )


def _factor(gain: Gain, metric: Metric, words: Wording) -> str:
    """The gain without its range, such as "1.4× more"."""
    ratio = times(gain.ratio, words)
    if metric.unit == "ms":
        return words.tr("{ratio}× sooner", ratio=ratio) if gain.better else words.tr("{ratio}× later", ratio=ratio)
    less = gain.better == metric.lower_is_better
    return words.tr("{ratio}× less", ratio=ratio) if less else words.tr("{ratio}× more", ratio=ratio)


def spread(low: float, high: float, words: Wording = ENGLISH) -> str:
    """The range of the pairs; empty for figures that were the same in every pair."""
    return f"{times(low, words)}–{times(high, words)}" if low != high else ""


def times(ratio: float, words: Wording = ENGLISH) -> str:
    """A ratio in two or three digits."""
    return words.figure(ratio, ",.0f" if ratio >= 10 else ".2f" if ratio < 2 else ".1f")


def amount(value: float, metric: Metric, words: Wording = ENGLISH) -> str:
    """A value with its unit."""
    if metric.unit == "bytes":  # in three digits, or what a cache saves next to the weights would not show
        many = value >= 0.9995e9
        return f"{words.figure(value / (1e9 if many else 1e6), ',.3g')} {'GB' if many else 'MB'}"
    digits = words.figure(value, ",.0f" if abs(value) >= 1000 else ".4g")
    return digits + (f" {words.known(metric.unit)}" if metric.unit else "")


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


def text_verdict(comparison: LabCompared, place: int, text: LabText, words: Wording = ENGLISH) -> str:
    """Verdict on a column's text, with what the column promises; ``place`` as in :func:`is_fault`."""
    sentence = words.known(text.sentence)
    if is_fault(comparison, place, text):
        return f"{sentence} {words.known(FAULT)}"
    rounded = comparison.lossless[place] and not text.same and not text.near_tie
    return f"{sentence} {words.known(ROUNDING)}" if rounded else sentence


def quality_lines(comparison: LabCompared, words: Wording = ENGLISH) -> list[str]:
    """A sentence for each column whose quality was measured."""
    first, *others = comparison.columns
    return [
        words.tr(
            "{column}: perplexity {here:.3f} against {there:.3f} of {first}, KL {kl:.5f} nats, the same likeliest "
            "token at {percent:.1f}% of {tokens:,} places.",
            column=column.name,
            here=quality.perplexity,
            there=quality.first,
            first=first.name,
            kl=quality.kl,
            percent=100 * quality.same_top,
            tokens=quality.tokens,
        )
        for column, quality in zip(others, comparison.quality, strict=True)
        if quality is not None
    ]
