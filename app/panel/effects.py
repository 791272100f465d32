"""Texts on a comparison's findings: a figure for the row, and a sentence for each figure, coloured by itself."""

from __future__ import annotations

from typing import NamedTuple

from app.language import figure as written
from app.language import known, tr
from app.panel.controls import value_title
from app.panel.verdicts import capital, spread, times, verdict
from app.texts.difference import parting, parts_at
from app.texts.side_by_side import Side
from app.words import size
from engine.protocol import Compared, Effect, OptionSpec

TONES = {"better": "good", "worse": "warn", "none": "caption", "few": "caption"}


class EffectLine(NamedTuple):
    """A sentence and the role of its label."""

    text: str
    tone: str


UNMEASURED = EffectLine("–", "caption")


def figure(result: Compared | None) -> EffectLine:
    """The figure for the row's own column, at most two short lines."""
    if result is None or not result.effects:
        return UNMEASURED
    own = result.effects[0]
    if own.ratio is None:
        return EffectLine(tr("no figure"), "caption")
    if own.verdict == "none":
        return EffectLine(tr("no clear\ndifference"), "tiny")
    text = f"{times(own.ratio)}×"
    if not _comparable(result, own):
        return EffectLine(tr("{gain}\nunlike", gain=text), "caption")
    between = spread(own.low, own.high)
    return EffectLine(f"{text}\n{between}" if between else text, TONES[own.verdict])


def lines(spec: OptionSpec, result: Compared, asked: str) -> list[EffectLine]:
    """``asked`` is the prompt that was replayed, in its own words."""
    off, on = (value_title(spec, value) for value in result.values[:2])
    about = tr("On: “{asked}” ({off} → {on})", asked=asked, off=off, on=on) if asked else f"{off} → {on}"
    return [
        EffectLine(f"{about}.", "caption"),
        *(EffectLine(sentence(effect, result), _tone(effect, result)) for effect in result.effects),
        text_verdict(result),
        *([EffectLine(result.note, "caption")] if result.note else []),
    ]


def sides(spec: OptionSpec, result: Compared) -> tuple[Side, Side]:
    """Both answers, of a result that has them."""
    speed = next((effect for effect in result.effects if effect.metric.figure == "tokens_per_second"), None)
    figures = [tr("{rate:,.1f} tokens/s", rate=value) for value in (speed.before, speed.after)] if speed else ["", ""]
    titles = [value_title(spec, value) for value in result.values[:2]]
    one, other = (Side(f"{known(spec.title)}: {titles[i]}", figures[i], result.texts[i]) for i in (0, 1))
    return one, other


def sentence(effect: Effect, result: Compared) -> str:
    """One figure: both medians, the gain with the range of its pairs, or that there is no clear difference."""
    metric = effect.metric
    values = f"{amount(effect.before, metric.unit)} → {amount(effect.after, metric.unit)}"
    head = f"{capital(known(metric.title))} {values}"
    if effect.ratio is None:
        return f"{head}."
    unlike = effect.verdict in ("better", "worse") and not _comparable(result, effect)
    said = verdict(effect)
    return f"{head}: {tr('{verdict} (unlike answers)', verdict=said) if unlike else said}."


def text_verdict(result: Compared) -> EffectLine:
    """Say whether both sides gave the same text."""
    if result.same:
        return EffectLine(tr("The answers are the same, token for token."), "caption")
    found = parting(*result.texts) if len(result.texts) == 2 else None
    where = parts_at(found) if found is not None else tr("from token {at} on", at=result.first_difference)
    if result.near_tie:
        said = tr("The answers differ {where} (a near-tie), so their speeds are not comparable.", where=where)
    else:
        said = tr("The answers differ {where}, so their speeds are not comparable.", where=where)
    return EffectLine(said, "warn")


def _comparable(result: Compared, effect: Effect) -> bool:
    """True if a figure can be compared: a counted one holds for any text, a timed one only for equal texts."""
    return result.same or effect.metric.counted


def _tone(effect: Effect, result: Compared) -> str:
    return TONES[effect.verdict] if _comparable(result, effect) else "caption"


def amount(value: float, unit: str) -> str:
    """A figure in its unit, for people."""
    match unit:
        case "bytes":
            return size(value) if value >= 1e5 else tr("{n:,.0f} bytes", n=value)
        case "%":
            return f"{100 * value:.0f} %"
        case "ms":
            return f"{written(value, ',.0f')} ms"  # not shown
    return written(value, ",.1f")
