"""What a comparison says, in words: the same in the report, in a terminal and in the window."""

from __future__ import annotations

from engine.protocol.from_engine import Effect
from engine.protocol.keys import BATCH_INVARIANT
from engine.protocol.lab import LabCompared, LabText
from engine.protocol.records import Metric

FAULT = "It was to be the same: that is a fault."
ROUNDING = (
    "Its settings are lossless up to rounding, which the fast kernels do otherwise for other batches; with "
    "batch_invariant on in both columns the text must be the same."
)


def verdict(effect: Effect) -> str:
    """What a figure says of a column against the first one: "1.40× more (1.20 to 1.55)"."""
    if effect.verdict == "none":
        return "no clear difference"
    if effect.ratio is None:
        return "no ratio: one of them is 0"
    ratio, low, high = effect.ratio, effect.low, effect.high
    better = ratio >= 1
    if not better:
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    if effect.metric.unit == "ms":
        word = "sooner" if better else "later"
    else:
        word = "less" if better == effect.metric.lower_is_better else "more"
    between = "" if f"{low:.2f}" == f"{high:.2f}" else f" ({low:.2f} to {high:.2f})"
    few = ", too few pairs to tell" if effect.verdict == "few" else ""
    return f"{ratio:.2f}× {word}{between}{few}"


def amount(value: float, metric: Metric) -> str:
    """A value with its unit."""
    if metric.unit == "bytes":  # in three digits, or what a cache saves next to the weights would not show
        return f"{value / 1e9:,.3g} GB" if value >= 0.9995e9 else f"{value / 1e6:,.3g} MB"
    return f"{value:,.4g}" + (f" {metric.unit}" if metric.unit else "")


def is_fault(told: LabCompared, place: int, text: LabText) -> bool:
    """Whether a column that must write the first one's text, in batch-invariant arithmetic, wrote another; ``place``
    counts from the one after that."""
    exact = all(told.columns[at].set.get(BATCH_INVARIANT) for at in (0, place + 1))
    return told.lossless[place] and exact and not text.same and not text.near_tie


def text_verdict(told: LabCompared, place: int, text: LabText) -> str:
    """Of a column's text, told with what the column promises; ``place`` as in :func:`is_fault`."""
    if is_fault(told, place, text):
        return f"{text.sentence} {FAULT}"
    rounded = told.lossless[place] and not text.same and not text.near_tie
    return f"{text.sentence} {ROUNDING}" if rounded else text.sentence


def quality_lines(told: LabCompared) -> list[str]:
    """A sentence for each column whose quality was measured."""
    return [
        f"{column.name}: perplexity {quality.perplexity:.3f} against {quality.first:.3f} of {told.columns[0].name}, KL "
        f"{quality.kl:.5f} nats, the same likeliest token at {quality.same_top:.1%} of {quality.tokens:,} places."
        for column, quality in zip(told.columns[1:], told.quality, strict=True)
        if quality is not None
    ]
