"""Verdicts of comparisons in the window's language; in English they are those of :mod:`engine.protocol.compared`."""

from __future__ import annotations

from app.language import figure, known, plural, tr
from engine.protocol import Effect, Metric, compared
from engine.protocol.compared import LEAST_PAIRS, Gain
from engine.protocol.lab import LabCompared, LabResult, LabText


def times(ratio: float) -> str:
    """A ratio in two or three digits."""
    return figure(ratio, ",.0f" if ratio >= 10 else ".2f" if ratio < 2 else ".1f")


def spread(low: float, high: float) -> str:
    """The range of the pairs; empty for figures that were the same in every pair."""
    return f"{times(low)}–{times(high)}" if low != high else ""


def verdict(effect: Effect) -> str:
    """The gain with the range of its pairs, "1.4× more (1.2–1.6 in 8 pairs)", or that there is no verdict."""
    gain = compared.gain_of(effect)
    if effect.verdict == "none" and (gain is None or not compared.wide(effect)):
        said = tr("no clear difference")
        return _in_pairs(said, spread(effect.low, effect.high), effect.pairs)
    if gain is None:
        return tr("no ratio: one of them is 0")
    said = _factor(gain, effect.metric)
    if effect.verdict == "few":
        return tr(
            "{gain}, but {pairs} of {least} pairs are too few for a verdict",
            gain=said,
            pairs=effect.pairs,
            least=LEAST_PAIRS,
        )
    between = spread(gain.low, gain.high)
    if effect.verdict == "none":
        return plural(
            "about {gain} ({between} in 1 pair), too noisy for a verdict",
            "about {gain} ({between} in {n} pairs), too noisy for a verdict",
            effect.pairs,
            gain=said,
            between=between,
        )
    return _in_pairs(said, between, effect.pairs)


def _in_pairs(said: str, between: str, pairs: int) -> str:
    if not between:
        return said
    return plural(
        "{verdict} ({between} in 1 pair)", "{verdict} ({between} in {n} pairs)", pairs, verdict=said, between=between
    )


def _factor(gain: Gain, metric: Metric) -> str:
    """The gain without its range, such as "1.4× more"."""
    ratio = times(gain.ratio)
    if metric.unit == "ms":
        return tr("{ratio}× sooner", ratio=ratio) if gain.better else tr("{ratio}× later", ratio=ratio)
    less = gain.better == metric.lower_is_better
    return tr("{ratio}× less", ratio=ratio) if less else tr("{ratio}× more", ratio=ratio)


def amount(value: float, metric: Metric) -> str:
    """A value with its unit."""
    if metric.unit == "bytes":  # in three digits, or what a cache saves next to the weights would not show
        return f"{figure(value / 1e9, ',.3g')} GB" if value >= 0.9995e9 else f"{figure(value / 1e6, ',.3g')} MB"
    digits = figure(value, ",.0f" if abs(value) >= 1000 else ".4g")
    return digits + (f" {known(metric.unit)}" if metric.unit else "")


def busy_or_quiet(others: float | None) -> str:
    """Sentence about a run in which other programs had this share of the processor; empty where nothing was timed."""
    if others is None:
        return ""
    share = 100 * others
    if compared.is_busy(others):
        return tr(
            "This computer was busy: other programs took {share:.0f}\u00a0% of its processor during the runs.",
            share=share,
        )
    return tr("This computer was quiet: other programs took {share:.0f}\u00a0% of its processor.", share=share)


def headline_of(result: LabResult) -> str:
    """The headline; of an older result, which names no count where its times could not be told, what it counted."""
    answer = result.answer
    if result.second or result.others is not None or answer is None or compared.decided(answer):
        return result.headline
    counts = [figure.effects[result.told_of] for figure in result.figures if figure.effects]
    count = next((each for each in counts if each.metric.counted), None)
    if count is None:
        return tr("This older run could not tell. Run it again.")
    after, before = amount(count.after, count.metric), amount(count.before, count.metric)
    return tr(
        "{figure}: {after} instead of {before}.", figure=capital(known(count.metric.title)), after=after, before=before
    )


def text_verdict(comparison: LabCompared, place: int, text: LabText) -> str:
    """Verdict on a column's text, with what the column promises; ``place`` as in :func:`compared.is_fault`."""
    sentence = known(text.sentence)
    if compared.is_fault(comparison, place, text):
        return f"{sentence} {tr('It was to be the same: that is a fault.')}"
    if not comparison.lossless[place] or text.same or text.near_tie:
        return sentence
    rounding = tr(
        "Its settings are lossless up to rounding, which the fast kernels do otherwise for other batches; with "
        "batch_invariant on in both columns the text must be the same."
    )
    return f"{sentence} {rounding}"


def quality_lines(comparison: LabCompared) -> list[str]:
    """A sentence for each column whose quality was measured."""
    first, *others = comparison.columns
    return [
        tr(
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


def capital(text: str) -> str:
    """The text as the beginning of a sentence."""
    return f"{text[:1].upper()}{text[1:]}"
