"""Limits of one rendering of a template: steps, time, and the size of what it makes.

A value's size is about its characters, and what a container takes for each element, an element that is in it twice
counting twice. As nothing too large is ever made, whatever prints, compares or copies a value is quick as well.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sized
from typing import Any

from jinja2.exceptions import SecurityError

MAX_STEPS = 200_000
"""Loop iterations and calls of one rendering, together."""
MAX_SIZE = 16 << 20
"""The largest size of the output, and of any value made on the way."""
MAX_MADE = 256 << 20
"""The largest size of all values made on the way together, which a template may keep all at once."""
MAX_SECONDS = 0.75
"""The most seconds of this thread's processor time; templates need about a thousandth."""
MAX_BITS = 1 << 16
"""The most bits of an integer."""
_ELEMENT = 32
_WIDE_PERCENT = re.compile(r"%[^a-zA-Z%]*(\*|\d{4,})")
_WHITE = "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


class RenderBudget:
    """Remaining budget of one rendering. Its methods raise jinja2's SecurityError when that is too little."""

    def __init__(self) -> None:
        self._steps, self._made = MAX_STEPS, MAX_MADE
        self._end = time.thread_time() + MAX_SECONDS
        # Containers of a template cannot change, so a size holds while the container lives; hence the reference.
        self._sizes: dict[int, tuple[object, int]] = {}

    def tick(self) -> None:
        if time.thread_time() > self._end:
            raise SecurityError("it takes too long")

    def step(self) -> None:
        self.tick()
        self._steps -= 1
        if self._steps < 0:
            raise SecurityError("it loops without end")

    def fits(self, size: int) -> None:
        """Ask before something of ``size`` is made."""
        if size > MAX_SIZE:
            raise SecurityError("it makes too large a text or list")

    def made(self, value: Any) -> Any:
        """``value``, after it was counted."""
        self.tick()
        self._made -= self.size(value)
        if self._made < 0:
            raise SecurityError("it makes too many texts or lists")
        return value

    def size(self, value: Any) -> int:
        if isinstance(value, str):
            self.fits(len(value))
            return len(value)
        if isinstance(value, int):
            self.bits(value.bit_length())
            return 1
        if not isinstance(value, list | tuple | dict | set | frozenset):
            return 1
        known = self._sizes.get(id(value))
        if known is not None:
            return known[1]
        self.fits(_ELEMENT * len(value))
        total = _ELEMENT
        for element in value:
            total += _ELEMENT + self.size(element)
            if isinstance(value, dict):
                total += self.size(value[element])
            self.fits(total)
        self._sizes[id(value)] = value, total
        return total

    def bits(self, count: int) -> None:
        if count > MAX_BITS:
            raise SecurityError("it computes too large a number")

    def repeated(self, left: Any, right: Any) -> None:
        """Ask before ``left * right``."""
        if isinstance(left, int) and isinstance(right, int):
            self.bits(left.bit_length() + right.bit_length())
        elif isinstance(right, int) and isinstance(left, Sized):
            self.fits(self.size(left) * right)
        elif isinstance(left, int) and isinstance(right, Sized):
            self.fits(self.size(right) * left)

    def joined(self, separator: str, items: Any) -> list[Any]:
        """Ask before ``items`` are joined; they come back as a list."""
        if isinstance(items, str):
            self.fits(_ELEMENT * len(items))
        found = list(items)
        self.fits(self.size(found) + len(separator) * len(found))
        return found

    def replaced(self, text: str, old: Any, new: Any, count: Any = -1) -> None:
        """Ask before ``old`` is replaced in ``text``."""
        times = text.count(str(old))
        if isinstance(count, int) and count >= 0:
            times = min(times, count)
        self.fits(len(text) + times * len(str(new)))

    def split(self, text: str, sep: Any = None, maxsplit: Any = -1) -> None:
        """Ask before ``text`` is split; without a separator at white space, which ends lines as well."""
        times = text.count(sep) if isinstance(sep, str) and sep else sum(map(text.count, _WHITE))
        if isinstance(maxsplit, int) and maxsplit >= 0:
            times = min(times, maxsplit)
        self.fits(len(text) + _ELEMENT * times)

    def filled(self, text: str, mark: str, *values: Any) -> None:
        """Ask before every ``mark`` in ``text`` is filled with some of ``values``; a number takes up to 400."""
        self.fits(len(text) + text.count(mark) * (400 + sum(map(self.size, values))))

    def formatted(self, text: str, *values: Any) -> None:
        """Ask before ``text`` is filled by ``%``."""
        if _WIDE_PERCENT.search(text):
            raise SecurityError("it formats text to a great width")
        self.filled(text, "%", *values)

    def padded(self, text: str, width: Any) -> None:
        """Ask before ``text`` is made ``width`` characters long."""
        self.fits(max(len(text), width if isinstance(width, int) else 0))
