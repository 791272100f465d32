"""Matches of words in a chat, without widgets: the text that a message shows, and where words stand in it.

Only a message that can have a match is rendered, and its text is kept, so that another letter costs little.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from html import unescape
from itertools import accumulate
from typing import NamedTuple

from app.chat.transcript.text.found import Find, MatchPlace, TextMatch
from app.history.records import StoredMessage
from app.history.search import folded
from app.texts.markdown import to_html

_CODE = re.compile(r"(<pre>.*?</pre>)", re.DOTALL)
_LINE = re.compile(r"</?(?:p|h\d|[uo]l|li|t[rdh]|table|thead|tbody|blockquote|pre|hr|br)\b[^>]*>")
_TAG = re.compile(r"<[^>]*>")
_SIGNS = re.compile(r"[\W_]+")
_HIDES = re.compile(r"\]\(|[&<]")
"""Markdown whose words are not all shown, or shown as others."""


class Count(NamedTuple):
    """Matches in a message: in its thinking and in its text."""

    thinking: int = 0
    content: int = 0

    @property
    def total(self) -> int:
        return self.thinking + self.content

    def place(self, ordinal: int) -> MatchPlace:
        """The place of a match of the message, counted from 0; one beyond the last is the last."""
        ordinal = min(ordinal, self.total - 1)
        return MatchPlace(True, ordinal) if ordinal < self.thinking else MatchPlace(False, ordinal - self.thinking)

    def ordinal(self, place: MatchPlace) -> int:
        return min(place.ordinal + (0 if place.thinking else self.thinking), self.total - 1)


def finder(words: str) -> Find:
    """Returns (start, end) of each occurrence of these words as they stand, whatever their case and accents."""
    needle = _folded(words)

    def find(text: str) -> list[tuple[int, int]]:
        text, found, at = _folded(text), [], 0
        while needle and (at := text.find(needle, at)) >= 0:
            found.append((at, at + len(needle)))
            at += len(needle)
        return found

    return find


def shown(source: str) -> str:
    """The text that Markdown shows, a line for each paragraph, cell, item and line of code."""
    parts = _CODE.split(to_html(source, formula=lambda *_: ""))
    for place in range(0, len(parts), 2):
        parts[place] = parts[place].replace("\n", " ")
    return unescape(_TAG.sub("", _LINE.sub("\n", "".join(parts)))).replace("\xa0", " ")


class Texts:
    """Texts of messages as they show them."""

    def __init__(self) -> None:
        self._squeezed: dict[str, tuple[str, str]] = {}
        """Message -> its source, and that without signs."""
        self._shown: dict[str, tuple[str, str]] = {}
        """Message -> its source, and what that shows."""

    def count(self, message: StoredMessage, words: str, find: Find) -> Count:
        """The matches of ``words``, which ``find`` finds."""
        if message.role == "user":
            return Count(0, len(find(message.content)))
        if message.role != "assistant":
            return Count()
        content = len(find(self._text(message))) if self._may_have(message, words) else 0
        return Count(len(find(message.thinking)), content)

    def forget(self) -> None:
        self._squeezed.clear()
        self._shown.clear()

    def _may_have(self, message: StoredMessage, words: str) -> bool:
        wanted, source = _SIGNS.sub("", _folded(words)), message.content
        if not wanted or _HIDES.search(source):
            return True
        kept, squeezed = self._squeezed.get(message.id, ("", ""))
        if kept != source:
            squeezed = _SIGNS.sub("", _folded(source))
            self._squeezed[message.id] = source, squeezed
        return wanted in squeezed

    def _text(self, message: StoredMessage) -> str:
        source, text = self._shown.get(message.id, ("", ""))
        if source != message.content:
            text = shown(message.content)
            self._shown[message.id] = message.content, text
        return text


class Matches:
    """The matches of a branch, in the order in which it is read."""

    def __init__(self, counted: Sequence[tuple[str, Count]]) -> None:
        """``counted``: the messages of the branch, by their ids."""
        self._counted = [(id, count) for id, count in counted if count.total]
        self._ends = list(accumulate(count.total for _, count in self._counted))
        self._order = {id: place for place, (id, _) in enumerate(counted)}

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[TextMatch]:
        return map(self.match, range(len(self)))

    def match(self, number: int) -> TextMatch:
        """The match of that number from 0; beyond the ends it goes on at the other."""
        number %= len(self)
        index = bisect_right(self._ends, number)
        id, count = self._counted[index]
        return TextMatch(id, count.place(number - (self._ends[index] - count.total)))

    def number(self, match: TextMatch) -> int:
        """The number of a match, -1 if its message has none any more."""
        for (id, count), end in zip(self._counted, self._ends, strict=True):
            if id == match.message:
                return end - count.total + count.ordinal(match.place)
        return -1

    def first_from(self, message: str) -> int:
        """The number of the first match in or below a message; that of the first of all where none is."""
        place = self._order.get(message, 0)
        below = (end - count.total for (id, count), end in zip(self._counted, self._ends, strict=True)
                 if self._order[id] >= place)  # fmt: skip
        return next(below, 0)


def _folded(text: str) -> str:
    return text.lower() if text.isascii() else folded(text)
