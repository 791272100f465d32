"""Small files of the window, read with care: whatever is wrong with one, it counts as missing.

The engine's reader (engine/files.py) says what is wrong; here nobody asks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


def read_small(file: Path, most: int) -> bytes | None:
    """All of a regular file of at most ``most`` bytes; None for any other."""
    try:
        if not file.is_file():  # a pipe would wait for ever
            return None
        with file.open("rb") as opened:
            raw = opened.read(most + 1)
    except (OSError, ValueError):
        return None
    return raw if len(raw) <= most else None


def decode_file(file: Path, kind: type[T], most: int) -> T | None:
    """What a JSON file holds, as a value of ``kind``; None where it holds none."""
    raw = read_small(file, most)
    try:
        return None if raw is None else msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
