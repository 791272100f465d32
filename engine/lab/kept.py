"""The results that are kept, a file each. Without torch, whose import takes longer than all of them."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from engine.paths import lab_folder
from engine.protocol.lab import LabResult

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
            found.append(msgspec.json.decode(file.read_bytes(), type=LabResult))
        except (OSError, msgspec.MsgspecError) as error:
            _log.warning("%s is no result of the Lab: %s", file, error)
    return sorted(found, key=lambda result: result.date)
