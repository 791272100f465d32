"""The list of experiments as the engine gave it last, kept in a file."""

from __future__ import annotations

from pathlib import Path

from app.files import decode_file
from engine.protocol.lab import LabIndex

_MOST_BYTES = 4 << 20


def kept_index(path: Path) -> LabIndex | None:
    """Return the list in the file; None for one that is not there or that this version cannot read."""
    return decode_file(path, LabIndex, _MOST_BYTES)
