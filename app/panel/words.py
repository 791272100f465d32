"""What the panel says: badges, results, when a change takes effect. Pure functions, no widgets."""

from __future__ import annotations

from typing import NamedTuple

from app.panel.controls import value_title
from engine.protocol import Compared, OptionSpec


class Badge(NamedTuple):
    text: str
    tone: str
    """A token of the style sheet's badges: "good", "warn" or "mute"."""
    meaning: str


BADGES: dict[str, Badge] = {
    "lossless": Badge("exact", "good", "The text stays the same, token for token."),
    "same distribution": Badge(
        "same dist.", "good", "Same distribution: another sample, drawn from exactly the same probabilities."
    ),
    "approximate": Badge("approx", "warn", "Approximate: the text may change a little."),
    "model property": Badge("model", "mute", "A property of the model itself: it comes with the checkpoint."),
}

APPLIES: dict[str, str] = {
    "live": "Takes effect at once.",
    "next request": "Takes effect with the next message.",
    "cache": "Drops the cache; the next message is read again.",
    "reload": "Reloads the model.",
}


class Bought(NamedTuple):
    """The figure of a row and how it is shown."""

    text: str
    tone: str
    sentence: str


UNMEASURED = Bought("–", "caption", "Not measured yet.")


def bought(spec: OptionSpec, result: Compared | None) -> Bought:
    """What a comparison shows: a ratio for equal answers, never a figure for unlike ones."""
    if result is None:
        return UNMEASURED
    if not result.same:
        return Bought("answers\ndiffer", "warn", _differ(result))
    if result.ratio is None:
        return Bought("–", "caption", result.note or "Nothing could be compared.")
    tone = "good" if result.ratio >= 1.005 else "warn" if result.ratio < 0.995 else "caption"
    return Bought(f"{result.ratio:.1f}×" if result.ratio < 10 else f"{result.ratio:.0f}×", tone, _same(spec, result))


def _differ(result: Compared) -> str:
    where = "" if result.first_difference is None else f" from token {result.first_difference}"
    tie = " (near-tie)" if result.near_tie else ""
    note = f" {result.note}" if result.note else ""
    return f"Answers differ{where}{tie}, not compared.{note}"


def _same(spec: OptionSpec, result: Compared) -> str:
    off, on = (value_title(spec, value) for value in result.values[:2])
    parts = [f"{result.before:.1f} → {result.after:.1f} tokens/s, same text ({off} → {on})."]
    if result.ttft_before and result.ttft_after:
        parts.append(f"First token {result.ttft_before:.0f} → {result.ttft_after:.0f} ms.")
    if result.note:
        parts.append(result.note)
    return " ".join(parts)


def explanation(spec: OptionSpec) -> str:
    """The expanded caption: what it does, what shows it, when it applies, where it comes from."""
    parts = [spec.explains, f"Shown by: {spec.shows}.", APPLIES[spec.applies]]
    if spec.reference:
        parts.append(spec.reference + ".")
    return "\n".join(parts)


def event_label(spec: OptionSpec, value: object) -> str:
    """Two words for the plots' dashed line: the option's first word and its new value's first word."""
    first = spec.title.split()[0].lower() if not spec.title[:2].isupper() else spec.title.split()[0]
    return f"{first} {value_title(spec, value).split()[0]}"  # type: ignore[arg-type]
