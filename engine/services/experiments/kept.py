"""The results that are kept, a file each. Without torch, whose import takes longer than all of them."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from engine.base.files import UnreadableFileError, decode_file
from engine.library.paths import lab_folder
from engine.protocol.lab import LabResult

MOST = 64 << 20
"""Bytes of a result."""
_log = logging.getLogger(__name__)


def keep(result: LabResult) -> Path:
    """Write a result where results are kept. Raises OSError."""
    stamp = result.date.replace(":", "").replace("+", "-")
    file = lab_folder() / f"{result.name}-{stamp}.json"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
    return file


def kept() -> list[LabResult]:
    """All that are kept, the oldest first; files that are none are passed over, with a line in the log."""
    found = []
    for file in lab_folder().glob("*.json"):
        try:
            result = decode_file(file, LabResult, MOST)
        except UnreadableFileError as error:
            _log.warning("no result of the Lab: %s", error.reason)
        else:
            found += [result] if result is not None else []
    return sorted(found, key=lambda result: result.date)


def newest() -> list[LabResult]:
    """The newest result of each experiment with its usual settings."""
    return [*{each.name: each for each in kept() if not each.chosen}.values()]
