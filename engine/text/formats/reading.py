"""Reading of text that is still being written, as coroutines: straight code that pauses where its text ends.

A reader of this kind is a generator without values: it yields where it needs more text, and is resumed once there is
more, or none will come. So whole text and text in pieces are read by the same lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

_T = TypeVar("_T")
Reading = Generator[None, None, _T]
Emit = Callable[[str], None]
SPACE = " \t\r\n"


class FormatError(ValueError):
    """The text is not what the format wants there."""


class Unread:
    """The part of a text that is not read yet, and the whole of it since :meth:`mark`."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False

    def add(self, text: str) -> None:
        self.text += text

    @property
    def rest(self) -> str:
        return self.text[self.at :]

    def mark(self) -> None:
        """Forget what was read."""
        self.text, self.at = self.rest, 0

    @property
    def marked(self) -> str:
        """What was read since the mark."""
        return self.text[: self.at]

    def more(self) -> Reading[bool]:
        """Wait for more text; False where none will come."""
        if self.ended:
            return False
        length = len(self.text)
        while len(self.text) == length and not self.ended:
            yield
        return len(self.text) > length

    def peek(self, length: int = 1) -> Reading[str]:
        """The next characters; fewer only at the end."""
        while len(self.text) - self.at < length and (yield from self.more()):
            pass
        return self.text[self.at : self.at + length]

    def spaces(self) -> Reading[None]:
        """Read white space."""
        while (yield from self.peek()) in (*SPACE,):
            self.at += 1

    def found(self, text: str) -> Reading[bool]:
        """Read this text if it comes next."""
        for length in range(1, len(text) + 1):
            if (yield from self.peek(length)) != text[:length]:
                return False
        self.at += len(text)
        return True

    def expect(self, text: str) -> Reading[None]:
        """Read this text. Raises FormatError for another."""
        if not (yield from self.found(text)):
            raise FormatError(f"{text!r} is missing")

    def until(self, marks: Sequence[str], emit: Emit, spaces: bool = False, whole: bool = True) -> Reading[str]:
        """Read to the first of these marks and behind it; returns it, "" where the text ends without one.

        What certainly comes before it is emitted as it comes. ``spaces`` before a mark belong to it. What
        the text ends with is emitted, too, also if it begins a mark, unless it is not to be ``whole``.
        """
        while True:
            rest = self.rest
            place, mark = min(((at, each) for each in marks if (at := rest.find(each)) >= 0), default=(-1, ""))
            if mark:
                emit(rest[:place].rstrip(SPACE) if spaces else rest[:place])
                self.at += place + len(mark)
                return mark
            sure = rest[: len(rest) - max((begun_length(rest, each) for each in marks), default=0)]
            sure = sure.rstrip(SPACE) if spaces else sure
            emit(sure)
            self.at += len(sure)
            if not (yield from self.more()):
                emit(self.rest if whole else "")
                self.at = len(self.text)
                return ""

    def before(self, marks: Sequence[str]) -> Reading[str]:
        """Read to the first of these marks and behind it; returns what was before. Raises FormatError without one."""
        parts: list[str] = []
        if not (yield from self.until(marks, parts.append)):
            raise FormatError(f"{marks[0]!r} is missing")
        return "".join(parts)


def begun_length(text: str, tag: str) -> int:
    """Length of the longest end of ``text`` that begins ``tag``."""
    return next((n for n in range(min(len(text), len(tag) - 1), 0, -1) if tag.startswith(text[-n:])), 0)


def json_value(unread: Unread, emit: Emit, opens: str = "") -> Reading[None]:
    """Read one JSON value, emitted as it comes. Raises FormatError for none, or one that does not begin with ``opens``.

    Only brackets and strings are looked at, so that what a model writes wrong inside reaches the client as it stands.
    """
    yield from unread.spaces()
    first = yield from unread.peek()
    if not first or first in ",:]}" or (opens and first not in opens):
        raise FormatError("a value is missing")
    depth, quoted, escaped, scalar = 0, False, False, first not in '{["'
    while True:
        rest = unread.rest
        for place, character in enumerate(rest):
            if scalar:
                done = character in ",:]}" + SPACE
            elif quoted:
                quoted, escaped = escaped or character != '"', not escaped and character == "\\"
                done = not quoted and not depth
            else:
                quoted = character == '"'
                depth += (character in "{[") - (character in "}]")
                done = not depth and not quoted
            if done:
                length = place + (not scalar)
                emit(rest[:length])
                unread.at += length
                return
        emit(rest)
        unread.at += len(rest)
        if not (yield from unread.more()):
            if scalar:
                return
            raise FormatError("a value has no end")


def whole_json(unread: Unread) -> Reading[Any]:
    """Read one JSON value. Raises FormatError."""
    parts: list[str] = []
    yield from json_value(unread, parts.append)
    try:
        return json.loads("".join(parts))
    except ValueError as error:
        raise FormatError(str(error)) from error
