"""Sentences on what pairs of runs gave."""

from __future__ import annotations

from engine.protocol import Effect, Metric
from engine.protocol.compared import Gain, amount, gain_of, is_busy, times, wide


def headline(effect: Effect, better: str, worse: str) -> str:
    """A sentence on what was counted, with both counts: ``better`` and ``worse`` go on after "2.1 times"."""
    before, after = (_count(value, effect.metric) for value in (effect.before, effect.after))
    gain = gain_of(effect)
    if effect.before == effect.after:
        return "The same on both sides."
    if gain is None or gain.ratio < 1.005:
        nearly = "Nearly the same on both sides" if gain is not None else "No ratio can be given"
        return f"{nearly}: {before} and {after}."
    between = f" ({_from_to(gain)} in {effect.pairs} pairs)" if times(gain.low) != times(gain.high) else ""
    return f"{_times(gain.ratio)} times {better if gain.better else worse}{between}: {after} instead of {before}."


def timed(effect: Effect, better: str, worse: str, pairs: int = 0) -> str:
    """A sentence on a figure with noise, the median first: ``better`` and ``worse`` as for :func:`headline`.

    ``pairs``: how many were asked for, 0 for as many as a verdict takes.
    """
    gain = gain_of(effect)
    if gain is None:
        before, after = (amount(value, effect.metric) for value in (effect.before, effect.after))
        same = effect.before == effect.after
        return "The same on both sides." if same else f"No ratio can be given: {before} and {after}."
    said = f"{times(gain.ratio)} times {better if gain.better else worse}"
    if times(gain.ratio) == times(1.0) and effect.verdict in ("none", "few"):
        said = "the same"
    many = f"{effect.pairs} pairs"
    if effect.verdict == "few" and effect.pairs == 1:
        there = "that was asked for" if pairs else "there was time for"
        return f"About {said} in the one run of each side {there}. Run it again to be sure."
    if effect.verdict == "few":
        return f"About {said}, {_from_to(gain)} in {many}: too few for a verdict. Run it again to be sure."
    if effect.verdict == "none":
        why = "too noisy for a verdict" if wide(effect) else "no clear difference"
        return f"About {said}, {_from_to(gain)} in {many}: {why}."
    return f"{said[:1].upper()}{said[1:]} ({_from_to(gain)} in {many})."


def steady(effect: Effect, others: float | None) -> bool:
    """Return True if the mean time of steps may be told although their ratio has no verdict: few pairs of many steps
    each say it, unless other programs were in the way."""
    return not wide(effect) or (effect.verdict == "few" and not is_busy(others))


def _count(value: float, metric: Metric) -> str:
    """A median may lie between two counts."""
    return f"{value:,.0f}" if value >= 100 and not metric.unit else amount(value, metric)


def _times(ratio: float) -> str:
    """Format a ratio in three digits, as counts have no noise."""
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}" if ratio >= 10 else f"{ratio:.2f}"


def _from_to(gain: Gain) -> str:
    return f"from {times(gain.low)} to {times(gain.high)}"


def lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
