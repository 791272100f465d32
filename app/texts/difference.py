"""Difference of two texts, in words. Pure functions, no widgets."""

from __future__ import annotations

import re
from typing import NamedTuple

from app.language import tr

_WORD = re.compile(r"\S+")
EXCERPT_WORDS = 4


class Parting(NamedTuple):
    """``at`` is the first character of the first word that is not the same; ``word`` counts from 1."""

    at: int
    word: int
    one: str
    other: str
    """Continuations of both, a few words each."""


def parting(one: str, other: str) -> Parting | None:
    """Find the place where the texts part; None for equal ones."""
    if one == other:
        return None
    same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    while same and not one[same - 1].isspace():  # a word that differs differs from its beginning on
        same -= 1
    return Parting(same, len(_WORD.findall(one[:same])) + 1, _excerpt(one[same:]), _excerpt(other[same:]))


def parts_at(found: Parting) -> str:
    """After "differs": "from word 12 on"."""
    return tr("from the first word on") if found.word == 1 else tr("from word {at} on", at=found.word)


def _excerpt(rest: str) -> str:
    words = rest.split(maxsplit=EXCERPT_WORDS)
    return " ".join(words[:EXCERPT_WORDS]) + ("…" if len(words) > EXCERPT_WORDS else "") if words else tr("(ends)")
