"""Fuzzy search of commands: each word as a piece of the title, or its letters in their order. No widgets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

_BEGINS, _INSIDE, _SPREAD = 8, 5, 1
"""Points of a letter: of a word that begins a word of the title, that is a piece of one, whose letters are spread."""


class TitleMatch(NamedTuple):
    """``places``: positions of the letters of the title that the words have."""

    points: int
    places: tuple[int, ...]

    @property
    def begins(self) -> int:
        """Position of the first of them."""
        return self.places[0] if self.places else 0


def match(words: str, title: str) -> TitleMatch | None:
    """Return how well ``title`` has each of the ``words``, None if it lacks one; no words are in every title."""
    points, places, folded = 0, set[int](), _folded(title)
    for word in words.split():
        found = _one(_folded(word), folded)
        if found is None:
            return None
        points += found.points
        places.update(found.places)
    return TitleMatch(points, tuple(sorted(places)))


def _one(word: str, title: str) -> TitleMatch | None:
    begins, spread = _patterns(word)
    if found := begins.search(title):
        return TitleMatch(_BEGINS * len(word), tuple(range(*found.span())))
    if (at := title.find(word)) >= 0:
        return TitleMatch(_INSIDE * len(word), tuple(range(at, at + len(word))))
    if found := spread.search(title):
        return TitleMatch(_SPREAD * len(word), tuple(found.start(number + 1) for number in range(len(word))))
    return None


@lru_cache(maxsize=64)
def _patterns(word: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns of a word at the beginning of another, and of its letters in their order, the first one at such a
    beginning."""
    letters: Sequence[str] = [f"({re.escape(letter)})" for letter in word]
    return re.compile(rf"(?<!\w){re.escape(word)}"), re.compile(r"(?<!\w)" + ".*?".join(letters), re.DOTALL)


def _folded(text: str) -> str:
    """Text in lower case, letter by letter where places would not stay what they are ("İ" becomes two)."""
    if len(lower := text.lower()) == len(text):
        return lower
    return "".join(low if len(low := letter.lower()) == 1 else letter for letter in text)
