"""Terms of a search: the words looked for, their places in a text, and the queries that ask SQLite for them.

A word is found at the beginning of one whatever its case and accents, and from three letters on inside of one too. What
the index of words cannot hold (scripts that are written without spaces, signs) is found letter by letter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

_SPACELESS = (
    "\u0e00-\u0eff\u0f00-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u318f\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"
)
"""Letters that follow each other without spaces: Thai, Lao, Tibetan, Burmese, Korean, Khmer, Japanese, Chinese."""
_PLAIN = re.compile(rf"[^\W_{_SPACELESS}]+")
_ACCENTS = "[\u0300-\u036f]*"
_ROUND = ".,;:!?\"'()[]{}<>«»“”‘’„…"
"""Signs that stand round a word without being meant."""
_LIKES, _ESCAPED = re.compile(r"([%_\\])"), r"\\\1"
"""Characters that LIKE takes for more than themselves."""
_TRIGRAM = 3
"""Letters that the index of letters needs; fewer are looked for in every message."""
_EXCERPT = 32
"""Characters of an excerpt on either side of what was found."""


class Query(NamedTuple):
    sql: str
    """Its rows: the columns of a chat, the id of a message, the content of the message."""
    values: tuple[str | int, ...]


class Term:
    """One word to look for."""

    def __init__(self, text: str) -> None:
        self.text = unicodedata.normalize("NFC", text)
        self.plain = bool(_PLAIN.fullmatch(self.text))
        """True if the index of words holds it."""

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """Pattern for texts that went through :func:`folded`."""
        letters = "".join(re.escape(char) + _ACCENTS for char in folded(self.text))
        if not self.plain:
            return re.compile(letters)
        begins = rf"\b{letters}(?:[^\W{_SPACELESS}]|[\u0300-\u036f])*"
        return re.compile(f"{begins}|{letters}" if len(self.text) >= _TRIGRAM else begins)

    def places(self, text: str) -> list[tuple[int, int]]:
        """(start, end) of each occurrence; one at the beginning of a word goes to the word's end."""
        return [match.span() for match in self._pattern.finditer(folded(text))]

    def in_words(self) -> tuple[str, list[str]]:
        """The condition on the message ``m`` that it has a word with this beginning, and its values."""
        return "m.number IN (SELECT rowid FROM words WHERE words MATCH ?)", [f"{_quoted(self.text)}*"]

    def in_letters(self) -> tuple[str, list[str]]:
        """The same for these letters anywhere, however their accents are written."""
        forms = list(dict.fromkeys((self.text, unicodedata.normalize("NFD", self.text))))
        if len(self.text) >= _TRIGRAM:
            found = " OR ".join(map(_quoted, forms))
            return "m.number IN (SELECT rowid FROM letters WHERE letters MATCH ?)", [found]
        if self.plain:  # too short to mean the inside of a word
            return self.in_words()
        likes = " OR ".join(["m.content LIKE ? ESCAPE '\\'"] * len(forms))
        return f"({likes})", [f"%{_LIKES.sub(_ESCAPED, form)}%" for form in forms]


def terms(text: str) -> list[Term]:
    """The words of what was typed."""
    sendable = text.encode(errors="replace").decode().replace("\0", " ")
    return [Term(word.strip(_ROUND) or word) for word in sendable.split()]


def places(text: str, words: str) -> list[tuple[int, int]]:
    """(start, end) of everything in ``text`` that a search for ``words`` finds there, in order and apart."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(place for term in terms(words) for place in term.places(text)):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def queries(wanted: Sequence[Term], columns: str, limit: int) -> Iterator[Query]:
    """Queries to ask SQLite, the best first: the beginnings of words by rank, then letters, the latest first."""
    plain = [term for term in wanted if term.plain]
    rest = [term.in_letters() for term in wanted if not term.plain]
    if plain:
        match = " ".join(f"{_quoted(term.text)}*" for term in plain)
        source = "words JOIN messages m ON m.number = words.rowid"
        yield _query(columns, source, [("words MATCH ?", [match]), *rest], "words.rank", limit)
    if rest or any(len(term.text) >= _TRIGRAM for term in plain):
        yield _query(columns, "messages m", [term.in_letters() for term in wanted], "m.number DESC", limit)


def excerpt(content: str, wanted: Sequence[Term]) -> str:
    """The place of the first of the words, on one line."""
    start, end = min((place for term in wanted for place in term.places(content)), default=(0, 0))
    first, last = max(0, start - _EXCERPT), end + _EXCERPT
    words = " ".join(content[first:last].split())
    return f"{'…' if first else ''}{words}{'…' if last < len(content) else ''}"


def folded(text: str) -> str:
    """The text without case and accents, a character for each character."""
    return "".join(map(_fold, text))


def _fold(char: str) -> str:
    if char.isascii():
        return char.lower()
    parts = unicodedata.normalize("NFD", char)
    if all(map(unicodedata.combining, parts[1:])):  # the parts of a Korean syllable are letters, not accents
        char = parts[0]
    return (char.lower() or char)[0]


def _quoted(text: str) -> str:
    """Quote the text as a phrase of FTS5."""
    return '"' + text.replace('"', '""') + '"'


def _query(columns: str, source: str, conditions: Sequence[tuple[str, list[str]]], order: str, limit: int) -> Query:
    where = " AND ".join(sql for sql, _ in conditions)
    values = [value for _, some in conditions for value in some]
    return Query(
        f"SELECT {columns}, m.id, m.content FROM {source} JOIN chats c ON c.id = m.chat "
        f"WHERE {where} AND m.state != 'streaming' AND NOT c.deleted ORDER BY {order} LIMIT ?",
        (*values, limit),
    )
