"""Small files of the window's own, opened with care: only regular ones, and read up to a size.

A pipe would wait for ever, and a device need not end.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from pathlib import Path
from typing import TypeVar

import msgspec

log = logging.getLogger(__name__)

T = TypeVar("T")
UNREADABLE = (OSError, ValueError, RecursionError, msgspec.MsgspecError)
"""Errors that a file may be refused for. Only newer versions of msgspec make their errors ValueErrors."""


def read_small(file: Path, most: int) -> bytes:
    """All of a regular file of at most ``most`` bytes. Raises OSError for anything else."""
    if not stat.S_ISREG(os.stat(file).st_mode):
        raise OSError(errno.EINVAL, "it is not a file", str(file))  # not shown: as English as the system's errors
    with file.open("rb") as stream:
        raw = stream.read(most + 1)  # what a file says of its size need not be so
    if len(raw) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(file))
    return raw


def decode_file(file: Path, kind: type[T], most: int) -> T | None:
    """Content of a JSON file as a value of ``kind``; None if there is no file, or none that can be read."""
    try:
        return msgspec.json.decode(read_small(file, most), type=kind)
    except FileNotFoundError:
        return None
    except UNREADABLE as error:
        log.warning("%s is not readable and counts as missing: %s", file, error)
        return None
