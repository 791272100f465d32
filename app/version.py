"""Version of Kvasir, and the one that last used the data folder: ``version.json`` there."""

from __future__ import annotations

import contextlib
import logging
import os
from importlib import metadata
from pathlib import Path

import msgspec

from app.files import decode_file

log = logging.getLogger(__name__)

FILE = "version.json"
MOST_BYTES = 10_000


class _Record(msgspec.Struct, frozen=True):
    kvasir: str


def installed() -> str:
    """The installed version of Kvasir."""
    try:
        return metadata.version("kvasir")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def last_used(data: Path) -> str:
    """The version that last opened everything in the folder; "" where none is recorded."""
    record = decode_file(data / FILE, _Record, MOST_BYTES)
    return "" if record is None else record.kvasir


def remember(data: Path) -> None:
    """Record this version. It is there to be named in a sentence: that it cannot be written is only logged."""
    if last_used(data) == installed():
        return
    unfinished = data / (FILE + ".new")
    try:
        unfinished.write_bytes(msgspec.json.encode(_Record(installed())) + b"\n")
        os.replace(unfinished, data / FILE)
    except OSError as error:
        log.warning("the version of Kvasir could not be recorded: %s", error)
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
