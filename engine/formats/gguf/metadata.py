"""The key-value part of a GGUF file, read without trusting it (ggml's docs/gguf.md).

Every length is compared with what is left of the file, and with a budget of memory, before anything is made of it.
"""

from __future__ import annotations

import mmap
import struct
import sys
from pathlib import Path
from typing import Any

from engine.base.errors import CheckpointError

AGAIN = "Download it again."
Value = bool | int | float | str | list[Any]
"""Values that a key can hold; a list holds values of one kind, and lists only to a depth of :data:`MAX_DEPTH`."""

MAX_KEYS = 1 << 14
MAX_DEPTH = 2
MAX_STRINGS = 1 << 20
"""The most strings in all arrays of a file. The largest vocabularies have 262,144 tokens and 515,000 merges."""
MEMORY = 80 << 20
"""Bytes that all values together may take as Python objects."""
MAX_TEXT = 4 << 20
MAX_KEY = 1024
_NUMBER_BYTES, _LIST_BYTES, _WIDEST = 32, 1000, 4
"""Most bytes of a number in a list, of a list in a list, and of a byte of text (lists for their time, not their room).
"""
_STRING, _ARRAY, _BOOL = 8, 9, 7
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_LEAST_BYTES = {kind: struct.calcsize(code) for kind, code in _NUMBERS.items()} | {_STRING: 8, _ARRAY: 12}
_BATCH = 1 << 15


class Reader:
    """A cursor over one mapped file. All that it raises is :class:`CheckpointError`."""

    def __init__(self, file: Path, data: mmap.mmap) -> None:
        self.file, self.data, self.at, self.end = file, data, 0, len(data)
        self._room, self._strings = MEMORY, 0

    def corrupt(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.file.name} is corrupt: {what}. {AGAIN}")

    def need(self, count: int, size: int, what: str) -> None:
        """Raise unless ``count`` items of at least ``size`` bytes can still follow."""
        if count * size > self.end - self.at:
            raise CheckpointError(
                f"{self.file.name} is truncated or corrupt: {what} at byte {self.at:,} goes beyond the file's end at "
                f"{self.end:,}. {AGAIN}"
            )

    def integer(self, code: str, what: str) -> int:
        """One little-endian number of ``struct``'s kind ``code``."""
        return self.integers(f"<{code}", what)[0]

    def integers(self, layout: str, what: str) -> tuple[int, ...]:
        """Numbers in a layout of ``struct``'s."""
        size = struct.calcsize(layout)
        self.need(1, size, what)
        values = struct.unpack_from(layout, self.data, self.at)
        self.at += size
        return values

    def string(self, what: str, most: int, errors: str = "strict") -> str:
        """``errors`` as in :meth:`bytes.decode`."""
        length = self.integer("Q", what)
        self.need(length, 1, what)
        if length > most:
            raise self.corrupt(f"{what} has {length:,} bytes")
        raw = self.data[self.at : self.at + length]
        self.at += length
        try:
            return raw.decode(errors=errors)
        except UnicodeDecodeError:
            raise self.corrupt(f"{what} is not text") from None

    def metadata(self, count: int) -> dict[str, Value]:
        """``count`` keys with their values."""
        if count > MAX_KEYS:
            raise self.corrupt(f"it claims to have {count:,} metadata keys")
        found: dict[str, Value] = {}
        for _ in range(count):
            key = self.string("a metadata key", MAX_KEY)
            if key in found:
                raise self.corrupt(f"its metadata key {key!r} occurs twice")
            self._charge(sys.getsizeof(key) + 100, key)
            found[key] = self._value(key, self.integer("I", key), 0)
        return found

    def _value(self, key: str, kind: int, depth: int) -> Value:
        what = f"the value of {key!r}"
        if kind == _STRING:
            # A quantiser's paths and the like are in whatever encoding its machine had.
            text = self.string(what, min(MAX_TEXT, self._room // _WIDEST), "replace")
            self._charge(sys.getsizeof(text), key)
            return text
        if kind == _ARRAY:
            return self._array(key, depth + 1)
        if kind not in _NUMBERS:
            raise self.corrupt(f"{what} has the unknown type {kind}")
        return self._numbers(key, kind, 1)[0]

    def _array(self, key: str, depth: int) -> list[Any]:
        what = f"the array {key!r}"
        if depth > MAX_DEPTH:
            raise self.corrupt(f"{what} is nested more than {MAX_DEPTH} deep")
        kind, count = self.integer("I", what), self.integer("Q", what)
        if kind not in _LEAST_BYTES:
            raise self.corrupt(f"{what} has elements of the unknown type {kind}")
        self.need(count, _LEAST_BYTES[kind], what)
        if kind == _STRING:
            return self._texts(key, count)
        if kind == _ARRAY:
            self._charge(_LIST_BYTES * count, key)
            return [self._array(key, depth + 1) for _ in range(count)]
        return self._numbers(key, kind, count)

    def _numbers(self, key: str, kind: int, count: int) -> list[Any]:
        self.need(count, _LEAST_BYTES[kind], f"the value of {key!r}")
        self._charge(_NUMBER_BYTES * count, key)
        values = list(struct.unpack_from(f"<{count}{_NUMBERS[kind]}", self.data, self.at))
        self.at += count * _LEAST_BYTES[kind]
        return [value != 0 for value in values] if kind == _BOOL else values

    def _texts(self, key: str, count: int) -> list[str]:
        """Strings in a tight loop: a vocabulary has hundreds of thousands."""
        self._strings += count
        if self._strings > MAX_STRINGS:
            raise self.corrupt(f"the array {key!r} has {count:,} texts")
        data, at, end, length_at = self.data, self.at, self.end, struct.Struct("<Q").unpack_from
        found: list[str] = []
        try:
            for start in range(0, count, _BATCH):
                batch: list[str] = []
                room = self._room
                for _ in range(min(_BATCH, count - start)):
                    (length,) = length_at(data, at)
                    at += 8
                    room -= _WIDEST * length
                    if room < 0 or length > end - at:
                        self.at = at
                        self.need(length, 1, f"a text of {key!r}")
                        raise self._too_large(key)
                    batch.append(data[at : at + length].decode())
                    at += length
                self._charge(sum(map(sys.getsizeof, batch)) + 8 * len(batch), key)
                found += batch
        except struct.error:
            self.at = at
            self.need(1, 8, f"a text of {key!r}")
            raise
        except UnicodeDecodeError:
            raise self.corrupt(f"a text of {key!r} is not valid UTF-8") from None
        self.at = at
        return found

    def _charge(self, size: int, key: str) -> None:
        self._room -= size
        if self._room < 0:
            raise self._too_large(key)

    def _too_large(self, key: str) -> CheckpointError:
        return self.corrupt(f"its metadata is absurdly large (at {key!r})")
