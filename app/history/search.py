"""Terms of a search: the words looked for, their places in a text, and the questions that ask SQLite for them.

A word is found at the beginning of one whatever its case and accents, and from three letters on inside of one too. What
the index of words cannot hold (scripts that are written without spaces, signs) is found letter by letter. ``tag:name``
is no word but a tag that the chat must have.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
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
_TAG = re.compile(r'(?<!\S)tag:(?:"([^"]*)"?|(\S*))', re.IGNORECASE)
_LIKES, _ESCAPED = re.compile(r"([%_\\])"), r"\\\1"
"""Characters that LIKE takes for more than themselves."""
_TRIGRAM = 3
"""Letters that the index of letters needs; fewer are looked for in its runs of three."""
_COMMON = 2_000
"""Messages from which on their latest are shown: to rank them all would take longer than a person waits for a key."""
_LAST = "\U0010ffff"
"""The last of all characters."""
_EXCERPT = 32
"""Characters of an excerpt on either side of what was found."""

Read = Callable[..., list[tuple]]
"""``read(sql, *values)`` gives the rows."""


class _Condition(NamedTuple):
    sql: str
    values: tuple[str | int, ...]


class Term:
    """One word to look for."""

    def __init__(self, text: str) -> None:
        self.text = unicodedata.normalize("NFC", text)
        self.plain = bool(_PLAIN.fullmatch(self.text))
        """True if the index of words holds it."""

    @property
    def long(self) -> bool:
        """True if the index of letters can be asked for it."""
        return len(self.text) >= _TRIGRAM

    @property
    def forms(self) -> list[str]:
        """The ways in which its accents may be written."""
        return list(dict.fromkeys((self.text, unicodedata.normalize("NFD", self.text))))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """Pattern for texts that went through :func:`folded`."""
        letters = "".join(re.escape(char) + _ACCENTS for char in folded(self.text))
        if not self.plain:
            return re.compile(letters)
        begins = rf"\b{letters}(?:[^\W{_SPACELESS}]|[\u0300-\u036f])*"
        return re.compile(f"{begins}|{letters}" if self.long else begins)

    def places(self, text: str) -> list[tuple[int, int]]:
        """(start, end) of each occurrence; one at the beginning of a word goes to the word's end."""
        return [match.span() for match in self._pattern.finditer(folded(text))]

    def inside(self, text: str) -> bool:
        """True if the text has it."""
        return self._pattern.search(folded(text)) is not None


class Wanted(NamedTuple):
    """What a search looks for."""

    terms: list[Term]
    tags: list[str]

    def has_tags(self, tags: Sequence[str]) -> bool:
        """True if each of the tags that are looked for is the beginning of one of ``tags``."""
        known = [folded(tag) for tag in tags]
        return all(any(tag.startswith(folded(wanted)) for tag in known) for wanted in self.tags)


def wanted(text: str) -> Wanted:
    """Words and tags of what was typed."""
    tags = [(quoted or plain).strip() for quoted, plain in _TAG.findall(text)]
    return Wanted(terms(_TAG.sub(" ", text)), tags)


def tag_words(tag: str) -> str:
    """What is typed to find the chats with this tag."""
    return f'tag:"{tag}"' if " " in tag else f"tag:{tag}"


def terms(text: str) -> list[Term]:
    """The words of what was typed."""
    sendable = text.encode(errors="replace").decode().replace("\0", " ")
    return [Term(word.strip(_ROUND) or word) for word in sendable.split()]


def places(text: str, words: str) -> list[tuple[int, int]]:
    """(start, end) of everything in ``text`` that a search for ``words`` finds there, in order and apart."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(place for term in wanted(words).terms for place in term.places(text)):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def messages(read: Read, wanted: Sequence[Term], columns: str, limit: int, chats: str = "") -> Iterator[tuple]:
    """Rows of messages that have all the terms, the best first: beginnings of words by rank, then letters, the latest
    first. Each has the ``columns`` of its chat ``c``, the id of the message, and its text.

    ``chats`` is a JSON list of the ids of the chats to look in, "" for all.
    """
    among = [_Condition("c.id IN (SELECT value FROM json_each(?))", (chats,))] if chats else []
    plain = [term for term in wanted if term.plain]
    signs = [term for term in wanted if not term.plain]
    if plain:
        match = " ".join(f"{_quoted(term.text)}*" for term in plain)
        probe = f"SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT {_COMMON})"
        order = "words.rank" if read(probe, match)[0][0] < _COMMON else "words.rowid DESC"
        found = [_Condition("words MATCH ?", (match,)), *(_letters(term) for term in signs), *among]
        yield from _rows(read, columns, "words JOIN messages m ON m.number = words.rowid", found, order, limit)
    if signs or any(term.long for term in plain):
        yield from _in_letters(read, wanted, columns, limit, among)


def _in_letters(
    read: Read, wanted: Sequence[Term], columns: str, limit: int, among: Sequence[_Condition]
) -> Iterator[tuple]:
    """Rows with the letters of all terms anywhere, the latest first."""
    conditions = [*among, *(_letters(term) for term in wanted if not term.long)]
    source, order = "messages m", "m.number DESC"
    if long := [term for term in wanted if term.long]:
        match = " AND ".join(f"({' OR '.join(map(_quoted, term.forms))})" for term in long)
        source, order = "letters CROSS JOIN messages m ON m.number = letters.rowid", "letters.rowid DESC"
        conditions = [_Condition("letters MATCH ?", (match,)), *conditions]
    elif (rare := _rare(read, wanted)) is not None:
        conditions.append(rare)
    yield from _rows(read, columns, source, conditions, order, limit)


def _letters(term: Term) -> _Condition:
    """The condition on the message ``m`` that it has these letters anywhere; of one or two of a plain word, which are
    too short to mean the inside of one, that a word begins with them."""
    if term.long:
        match = " OR ".join(map(_quoted, term.forms))
        return _Condition("m.number IN (SELECT rowid FROM letters WHERE letters MATCH ?)", (match,))
    if term.plain:
        begin = (f"{_quoted(term.text)}*",)
        return _Condition("EXISTS (SELECT 1 FROM words w WHERE w.words MATCH ? AND w.rowid = m.number)", begin)
    likes = " OR ".join(["m.content LIKE ? ESCAPE '\\'"] * len(term.forms))
    return _Condition(f"({likes})", tuple(f"%{_LIKES.sub(_ESCAPED, form)}%" for form in term.forms))


def _rare(read: Read, wanted: Sequence[Term]) -> _Condition | None:
    """The condition that a message is one of the few with one of these short terms; None where each is common, so that
    the latest messages have it."""
    for term in wanted:
        asked, values = list[str](), list[str]()
        for form in (form.lower() for form in term.forms):
            asked += ["SELECT doc FROM letter_runs WHERE term >= ? AND term < ?"]
            values += [form, form + _LAST]
            ends = "lower(substr(content, -2)) >= ? AND lower(substr(content, -2)) < ?"
            asked += [f"SELECT number FROM messages WHERE {ends}"]
            values += [form, form + _LAST]
            if len(form) == 1:
                asked += ["SELECT number FROM messages WHERE lower(substr(content, -1)) = ?"]
                values += [form]
        few = " UNION ALL ".join(asked)
        if len(read(f"{few} LIMIT {_COMMON}", *values)) < _COMMON:
            return _Condition(f"m.number IN ({few})", tuple(values))
    return None


def excerpt(content: str, wanted: Sequence[Term]) -> str:
    """The place of the first of the words, on one line."""
    start, end = min((place for term in wanted for place in term.places(content)), default=(0, 0))
    first, last = max(0, start - _EXCERPT), end + _EXCERPT
    words = " ".join(content[first:last].split())
    return f"{'…' if first else ''}{words}{'…' if last < len(content) else ''}"


class _Folds(dict[int, str]):
    """Characters without case and accents, by their code points, as they come."""

    def __missing__(self, code: int) -> str:
        folded = self[code] = _fold(chr(code))
        return folded


_folds = _Folds()


def folded(text: str) -> str:
    """The text without case and accents, a character for each character."""
    return text.lower() if text.isascii() else text.translate(_folds)


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


def _rows(
    read: Read, columns: str, source: str, conditions: Sequence[_Condition], order: str, limit: int
) -> list[tuple]:
    where = " AND ".join(condition.sql for condition in conditions)
    values = [value for condition in conditions for value in condition.values]
    return read(
        f"SELECT {columns}, m.id, m.content FROM {source} JOIN chats c ON c.id = m.chat "
        f"WHERE {where} AND m.state != 'streaming' AND NOT c.deleted ORDER BY {order} LIMIT ?",
        *values,
        limit,
    )
