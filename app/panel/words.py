"""Texts of the panel: badges, when a change takes effect. Pure functions, no widgets."""

from __future__ import annotations

import re
from html import escape
from typing import NamedTuple

from app.language import known, tr
from app.panel.controls import value_title
from app.panel.titles import in_two
from engine.protocol import OptionSpec


class Badge(NamedTuple):
    text: str
    tone: str
    """A token of the style sheet's badges: "good", "warn" or "mute"."""
    meaning: str


BADGES: dict[str, Badge] = {
    "same distribution": Badge(  # not shown
        tr("same distribution"),
        "mute",
        tr("Same distribution: another sample, drawn from exactly the same probabilities."),
    ),
    "approximate": Badge(tr("lossy"), "warn", tr("Lossy: the text may change a little.")),
}
"""The badges of exactnesses under which the text can change; the others have none."""


def badge_of(spec: OptionSpec) -> Badge | None:
    """A badge only where the present value can change the text; a lossy switch's default is lossless and cannot."""
    return None if spec.value == spec.default else BADGES.get(spec.exactness)


APPLIES: dict[str, str] = {
    "live": tr("Takes effect at once."),
    "next request": tr("Takes effect with the next message."),  # not shown
    "cache": tr("Drops the cache; the next message is read again."),
    "reload": tr("Reloads the model."),
}


_SOURCE = re.compile(r"arXiv (?P<paper>\d{4}\.\d{4,5})|https://[^\s)]+")


def paper(spec: OptionSpec) -> str:
    """Source of the technique, marked up, with a link to each address or paper; "" if it has none."""

    def link(found: re.Match[str]) -> str:
        address = f"https://arxiv.org/abs/{found['paper']}" if found["paper"] else found[0]
        return f'<a href="{address}">{found[0]}</a>'

    return _SOURCE.sub(link, escape(spec.reference))


def explanation(spec: OptionSpec) -> str:
    """The expanded caption, a paragraph each: what it does, what shows it, when it applies."""
    parts = [
        known(spec.explains),
        tr("What to watch: {shows}.", shows=known(spec.measure.shows)),
        APPLIES[spec.applies],
    ]
    if spec.measure.metric.elsewhere:
        parts.append(known(spec.measure.metric.elsewhere))
    return "\n\n".join(parts)


_MOST_NAME = 18
"""Characters of a switch's name at a mark of the plots."""


def event_label(spec: OptionSpec, value: object) -> str:
    """The label of the plots' dashed line: the switch by its name, without what is in brackets, and one word of its
    value."""
    name = in_two(known(spec.title))[0]
    if len(name) > _MOST_NAME:
        name = f"{name[: _MOST_NAME - 1].rstrip()}…"
    return f"{name} {_one_word(spec, value_title(spec, value))}"  # type: ignore[arg-type]


def _one_word(spec: OptionSpec, title: str) -> str:
    """The first word of a value's title; where several titles begin with it, the first of the term in brackets."""
    first, term = _first(title), in_two(title)[1]
    shared = sum(_first(known(other)) == first for other in spec.titles.values()) > 1
    return _first(term) if shared and term else first


def _first(words: str) -> str:
    return words.split()[0].rstrip(",")
