"""Write docs/together.md, the features of the catalogue each with each: ``python docs/together.py`` (a test compares).

A feature is a switch at a value at which it does something; which pairs exclude each other, or do nothing together, is
asked of ``engine.catalogue.exclusions``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from string import ascii_lowercase
from typing import NamedTuple

import engine.loading.techniques  # noqa: F401 - fills the catalogue
from engine.catalogue import BY_KEY, Option, conflict, idle
from engine.catalogue.exclusions import EXCLUSIONS, IDLE, MISSING, SHAPES, Setting
from engine.protocol import Value

TARGET = Path(__file__).parent / "together.md"

HEAD = """# What goes together

Made from `engine/catalogue` by `python docs/together.py`, as are the refusals of the panel, the command line and the
API. The features are the switches of [the optimisations](optimisations.md) at the values at which they do something.
"""
LEGEND = """✓ They work together. ✗ One is refused while the other is in force. ○ Both may be on, and one of them then
does nothing. The letters stand for the reasons below. Of the values of one switch only one is in force: such cells are
empty.
"""
NEEDS = """## What the model and the machine must have

| feature | cannot apply where |
| --- | --- |
"""


class Feature(NamedTuple):
    title: str
    entry: Option
    value: Value


def page() -> str:
    """The page's text."""
    found = list(features())
    notes: dict[str, str] = {}
    rows = [_row(place, found, notes) for place in range(len(found))]
    numbers = "".join(f" {place + 1} |" for place in range(len(found)))
    reasons = "\n".join(f"- **{letter}** {reason}" for reason, letter in notes.items())
    table = "\n".join([f"| |{numbers}", "| --- |" + " :-: |" * len(found), *rows])
    needs = "\n".join(f"| {one.title} | {' '.join(lacks)} |" for one in found if (lacks := list(_lacks(one))))
    return "\n".join([HEAD, LEGEND, f"{table}\n", f"{reasons}\n", f"{NEEDS}{needs}\n"])


def features() -> Iterator[Feature]:
    """Every switch that stands by itself, or that a rule names, at the values that are features."""
    for entry in BY_KEY.values():
        named = _named(entry.key)
        ruled = any(rule.key == entry.key for rule in IDLE)
        if entry.relevant.of[0] and not named and not ruled:
            continue
        if entry.choices:
            for choice in entry.choices:
                if choice.key in named or choice.key != entry.measure.compare[0]:
                    yield Feature(f"{entry.title}: {choice.title}", entry, choice.key)
        elif entry.kind == "bool":
            if ruled or True in named or not named:
                yield Feature(entry.title, entry, True)
            if False in named:
                yield Feature(f"{entry.title}: off", entry, False)
        elif entry.range.zero_means == "off" or named or ruled:
            assert entry.range.maximum is not None, "numbers have bounds"
            yield Feature(entry.title, entry, entry.range.maximum)


def _named(key: str) -> set[Value]:
    """The values of a switch that the rules speak of."""
    settings: list[Setting] = [*chain.from_iterable((rule.one, rule.other) for rule in EXCLUSIONS)]
    settings += [rule.under for rule in IDLE]
    return {value for setting in settings if setting.key == key for value in setting.values}


def _row(place: int, found: Sequence[Feature], notes: dict[str, str]) -> str:
    cells = [_cell(found[place], other, notes) for other in found[:place]]
    cells += [""] * (len(found) - place)
    return f"| **{place + 1}** {found[place].title} |" + "".join(f" {cell} |" for cell in cells)


def _cell(one: Feature, other: Feature, notes: dict[str, str]) -> str:
    """``notes`` gains the reason, with a letter of its own."""
    if one.entry is other.entry:
        return ""
    mark, reason = relation(one, other)
    if not reason:
        return mark
    return f"{mark} {notes.setdefault(reason, ascii_lowercase[len(notes)])}"


def relation(one: Feature, other: Feature) -> tuple[str, str]:
    """The mark of a pair, and the reason where they do not work together."""
    if reason := conflict({one.entry.key: one.value, other.entry.key: other.value}):
        return "✗", reason
    for feature, beside in ((one, other), (other, one)):
        if reason := _nothing(feature, beside):
            return "○", reason
    return "✓", ""


def _nothing(feature: Feature, beside: Feature) -> str:
    """Why a feature does nothing beside another, or an empty string."""
    entry, chosen = feature.entry, {beside.entry.key: beside.value}
    if feature.value is False:
        return ""
    key, values = entry.relevant.of
    if key == beside.entry.key and beside.value not in values:
        titles = ", ".join(choice.title for choice in BY_KEY[key].choices if choice.key in values)
        return f"{entry.title} means something only with {BY_KEY[key].title} at {titles}."
    return idle(entry.key, chosen)


def _lacks(feature: Feature) -> Iterator[str]:
    """The reasons why a feature may not apply to a model or a machine."""
    entry, value = feature.entry, feature.value
    if value is False:
        return
    needs = chain.from_iterable(choice.needs for choice in entry.choices if choice.key == value)
    yield from (MISSING[need] for need in (*entry.needs, *needs, *entry.relevant.capabilities))
    yield from (rule.reason for rule in SHAPES if rule.setting.holds({entry.key: value}))


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
