"""The patterns of ``rank_pattern`` and ``alpha_pattern``: regular expressions that end a module's name (PEFT).

They come from strangers, and Python's own matcher goes back and forth: some expressions take it for ever. This one
follows all ways through an expression at once, as sets of places in the name, and counts its steps. It reads what such
patterns are written with; what it does not read is refused rather than guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

MOST_CHARACTERS = 300
MOST_STEPS = 20_000_000
"""Places that are looked at for all modules of an adapter together; usual are some thousands."""
MOST_DEPTH = 20
MOST_COUNT = 1000
ENDLESS = 1 << 30

Places = frozenset[int]
Matcher = Callable[[str, Places, "Steps"], Places]
"""The places where a match can end that begins at one of the given places of a name."""


class NotRead(ValueError):  # noqa: N818 - becomes a CheckpointError, which names the adapter
    """Refusal of a pattern; the message is the rest of a sentence that begins with the pattern."""


class Steps:
    """Budget of the steps that matching may still take; :meth:`take` raises :class:`NotRead` once it is spent."""

    def __init__(self, most: int = MOST_STEPS) -> None:
        self._left = most

    def take(self, count: int) -> None:
        self._left -= 1 + count
        if self._left < 0:
            raise NotRead("takes too long to be matched")


_PLAIN = re.compile(r"\^?(?:[A-Za-z0-9_]|\\?\.)+\$?")
"""A name with its dots, escaped or not: without repetitions and choices, Python's matcher is as quick as can be."""


class Pattern(NamedTuple):
    """One pattern as the file has it. ``plain``: Python's expression of one that is a name."""

    text: str
    matcher: Matcher
    plain: re.Pattern[str] | None = None

    @classmethod
    def read(cls, text: str) -> Pattern:
        """Raises :class:`NotRead`."""
        if len(text) > MOST_CHARACTERS:
            raise NotRead(f"has more than {MOST_CHARACTERS} characters")
        plain = re.compile(rf"(?:.*\.)?(?:{text})$") if _PLAIN.fullmatch(text) else None
        return cls(text, _Parser(text).whole(), plain)

    def ends(self, name: str, steps: Steps) -> bool:
        """Return True if the pattern matches the end of a module's name, from its beginning or after a dot.

        Raises :class:`NotRead` where that takes too many ``steps``.
        """
        if self.plain is not None:
            steps.take(1)
            return self.plain.match(name) is not None
        starts = frozenset((0, *(place + 1 for place, letter in enumerate(name) if letter == ".")))
        return len(name) in self.matcher(name, starts, steps)


# --- matching --------------------------------------------------------------------------------------------------------


def _letter(test: Callable[[str], bool]) -> Matcher:
    def match(name: str, starts: Places, steps: Steps) -> Places:
        steps.take(len(starts))
        return frozenset(place + 1 for place in starts if place < len(name) and test(name[place]))

    return match


def _at(test: Callable[[str, int], bool]) -> Matcher:
    def match(name: str, starts: Places, steps: Steps) -> Places:
        steps.take(len(starts))
        return frozenset(place for place in starts if test(name, place))

    return match


def _sequence(parts: list[Matcher]) -> Matcher:
    def match(name: str, starts: Places, steps: Steps) -> Places:
        for part in parts:
            if not starts:
                break
            starts = part(name, starts, steps)
        return starts

    return match


def _either(ways: list[Matcher]) -> Matcher:
    def match(name: str, starts: Places, steps: Steps) -> Places:
        return frozenset().union(*(way(name, starts, steps) for way in ways))

    return match


def _repeated(part: Matcher, least: int, most: int) -> Matcher:
    """Each further turn only from places that no earlier one came to, so that it ends after the name's length."""

    def match(name: str, starts: Places, steps: Steps) -> Places:
        for _ in range(least):
            after = part(name, starts, steps)
            if after == starts:
                break
            starts = after
        found = newest = starts
        for _ in range(most - least):
            newest = part(name, newest, steps) - found
            if not newest:
                break
            found |= newest
        return found

    return match


# --- reading ---------------------------------------------------------------------------------------------------------


def _is_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


def _is_boundary(name: str, place: int) -> bool:
    before = place > 0 and _is_word(name[place - 1])
    return before != (place < len(name) and _is_word(name[place]))


_KINDS: dict[str, Callable[[str], bool]] = {"d": str.isdecimal, "w": _is_word, "s": str.isspace}
_PLACES: dict[str, Callable[[str, int], bool]] = {
    "A": lambda name, place: place == 0,
    "Z": lambda name, place: place == len(name),
    "b": _is_boundary,
    "B": lambda name, place: not _is_boundary(name, place),
}
_COUNT = re.compile(r"\{(?!\})([0-9]{0,9})(?:(,)([0-9]{0,9}))?\}")
_GROUP = re.compile(r"\((?:\?:)?")


def _kind(letter: str) -> Callable[[str], bool] | None:
    """Test for the characters that an escaped letter stands for, negated for a capital; None for any other letter."""
    test = _KINDS.get(letter.lower())
    if test is None or letter.islower():
        return test
    return lambda other: not test(other)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._place, self._depth = text, 0, 0

    def whole(self) -> Matcher:
        found = self._ways()
        if self._place < len(self._text):
            raise NotRead("closes a group that it did not open")
        return found

    @property
    def _next(self) -> str:
        return self._text[self._place : self._place + 1]

    def _take(self) -> str:
        letter = self._next
        self._place += 1
        return letter

    def _ways(self) -> Matcher:
        ways = [_sequence(list(self._parts()))]
        while self._next == "|":
            self._take()
            ways.append(_sequence(list(self._parts())))
        return _either(ways) if len(ways) > 1 else ways[0]

    def _parts(self) -> Iterator[Matcher]:
        while self._next not in ("", "|", ")"):
            if _COUNT.match(self._text, self._place):
                raise NotRead("repeats what cannot be repeated")
            place = self._next in "^$" or self._text[self._place : self._place + 2] in (r"\A", r"\Z", r"\b", r"\B")
            part = self._part()
            count = self._repeats()
            if count is not None and (place or self._repeats() is not None):
                raise NotRead("repeats what cannot be repeated")
            yield part if count is None else _repeated(part, *count)

    def _part(self) -> Matcher:
        match letter := self._take():
            case "(":
                return self._group()
            case "[":
                return _letter(self._class())
            case "\\":
                return self._escaped()
            case ".":
                return _letter(lambda other: other != "\n")
            case "^" | "$":
                return _at(_PLACES["A" if letter == "^" else "Z"])
            case "*" | "+" | "?":
                raise NotRead("repeats what cannot be repeated")
        return _letter(letter.__eq__)

    def _repeats(self) -> tuple[int, int] | None:
        """Read a quantifier: the least and the most repetitions of what stands before it; None without one (once).

        Raises :class:`NotRead` for a count that cannot be or is too large, and for a possessive quantifier.
        """
        counts = {"*": (0, ENDLESS), "+": (1, ENDLESS), "?": (0, 1)}.get(self._next)
        if counts is not None:
            self._take()
        else:
            found = _COUNT.match(self._text, self._place)
            if found is None:
                return None
            self._place = found.end()
            least = int(found[1] or 0)
            most = (int(found[3]) if found[3] else ENDLESS) if found[2] else least
            if most < least or least > MOST_COUNT or MOST_COUNT < most < ENDLESS:
                raise NotRead("counts repetitions in a way that cannot be")
            counts = least, most
        if self._next == "+":
            raise NotRead("has a possessive repetition")
        if self._next == "?":
            self._take()  # the shortest match instead of the longest: whether there is one is all that counts
        return counts

    def _group(self) -> Matcher:
        opened = _GROUP.match(self._text, self._place - 1)
        assert opened is not None, "it begins with a parenthesis"
        self._place = opened.end()
        if self._next == "?" or self._depth == MOST_DEPTH:
            raise NotRead("has a group of a kind that Kvasir does not match")
        self._depth += 1
        found = self._ways()
        self._depth -= 1
        if self._take() != ")":
            raise NotRead("opens a group that it does not close")
        return found

    def _escaped(self) -> Matcher:
        letter = self._take()
        if letter in _PLACES:
            return _at(_PLACES[letter])
        return _letter(_kind(letter) or self._literal(letter).__eq__)

    def _literal(self, letter: str) -> str:
        """An escaped sign, which stands for itself; letters and digits have meanings."""
        if not letter or (letter.isascii() and letter.isalnum()):
            raise NotRead(f"has the escape \\{letter}, which Kvasir does not match")
        return letter

    def _class(self) -> Callable[[str], bool]:
        """A class of letters in brackets, of which the first was read."""
        other = self._next == "^"
        self._place += other
        tests, first = list[Callable[[str], bool]](), self._place
        while (letter := self._take()) != "]" or self._place == first + 1:
            if not letter:
                raise NotRead("opens a class that it does not close")
            if letter == "\\":
                letter = self._take()
                kind = _kind(letter)
                if kind is not None:
                    if self._next == "-" and self._text[self._place + 1 : self._place + 2] != "]":
                        raise NotRead("has a class whose range begins with a kind of letters")
                    tests.append(kind)
                    continue
                letter = self._literal(letter)
            last = letter
            if self._next == "-" and self._text[self._place + 1 : self._place + 2] not in ("", "]"):
                self._take()
                last = self._take()
                last = self._literal(self._take()) if last == "\\" else last
                if last < letter:
                    raise NotRead("has a class whose range ends before it begins")
            tests.append(_range(letter, last))
        return lambda letter: other != any(test(letter) for test in tests)


def _range(first: str, last: str) -> Callable[[str], bool]:
    return lambda letter: first <= letter <= last
