"""Small files, opened with care: only regular ones, and what is read whole only up to a size.

Whatever is wrong with one is a single error, :class:`UnreadableFileError`, so that it costs that file alone. A pipe
would wait for ever, a device need not end, and bytes that are no UTF-8 or lists nested a thousand deep each have an
exception of their own, which nobody expects.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, TypeVar

from engine.base.errors import CheckpointError

T = TypeVar("T")
MAX_JSON = 4 << 20
"""Bytes of a configuration; the longest known lists of modules take a tenth."""
SAFETENSORS_HEADER = 10_000_000
"""Bytes. Some 80,000 tensors a file: 128 packed experts in each of 48 layers have 75,000. (The format allows 100 MB,
which no model has, and whose parsing takes 700 MB.)"""
POOLING_FILE = "1_Pooling/config.json"
"""File in a model's folder by which sentence-transformers knows that it embeds, and how."""
REPAIR = "Download the model again, or repair the file."
_KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))


class UnreadableFileError(CheckpointError):
    """A file is none, cannot be read, or does not hold what it should. ``reason``: that as a sentence, without what to
    do, which depends on whose file it is."""

    def __init__(self, reason: str, advice: str = REPAIR) -> None:
        super().__init__(f"{reason} {advice}")
        self.reason = str(CheckpointError(reason))


def regular_size(file: Path) -> int:
    """Bytes of a regular file, or of the one that a link leads to.

    Raises :class:`UnreadableFileError` for anything else, and FileNotFoundError where there is nothing.
    """
    try:
        status = os.stat(file)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise unreadable(file, error) from error
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for check, name in _KINDS if check(status.st_mode)), "a device")
        raise UnreadableFileError(f"{file} is {kind}, where a file is needed.", "Download the model again.")
    return status.st_size


def read_small(file: Path, most: int) -> bytes | None:
    """All of a file of at most ``most`` bytes; None where there is none. Raises :class:`UnreadableFileError`."""
    try:
        regular_size(file)
        with file.open("rb") as stream:
            raw = stream.read(most + 1)  # what a file says of its size need not be so
    except FileNotFoundError:
        return None
    except (OSError, MemoryError) as error:
        raise unreadable(file, error) from error
    if len(raw) > most:
        raise UnreadableFileError(f"{file} has more than {most:,} bytes, which no such file needs.")
    return raw


def read_text(file: Path, most: int = MAX_JSON) -> str | None:
    """The text of :func:`read_small`, without the mark that some editors begin a file with."""
    raw = read_small(file, most)
    try:
        return None if raw is None else raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFileError(f"{file} is not text in UTF-8 (at byte {error.start:,}).") from error


def read_json(file: Path, most: int = MAX_JSON) -> dict[str, Any] | None:
    """The object in a JSON file; None where there is no such file. Raises :class:`UnreadableFileError`."""
    text = read_text(file, most)
    if text is None:
        return None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno:,}, column {error.colno:,}"
        raise UnreadableFileError(f"{file} is not valid JSON ({where}).") from error
    except RecursionError as error:
        raise UnreadableFileError(f"{file} is nested too deeply.") from error
    except ValueError as error:
        raise UnreadableFileError(f"{file} holds a number of too many digits.") from error
    if not isinstance(value, dict):
        raise UnreadableFileError(f"{file} holds no JSON object.")
    return value


def decode_file(file: Path, kind: type[T], most: int = MAX_JSON) -> T | None:
    """Decode a JSON file as a value of ``kind``; None where there is no such file.

    Raises :class:`UnreadableFileError`.
    """
    text = read_text(file, most)
    if text is None:
        return None
    import msgspec  # not above: the start of GPU packs, which every command passes through, reads files too

    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError as error:
        raise UnreadableFileError(f"{file} is nested too deeply.") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise UnreadableFileError(f"{file} does not hold what it should ({error}).") from error


def can_be_path(text: str) -> bool:
    """Return True if the text can be a path, existing or not. Text of damaged or hostile files may be too long, or hold
    a NUL."""
    if not text:
        return False
    try:
        os.lstat(text)
    except ValueError:
        return False
    except OSError as error:
        return error.errno != errno.ENAMETOOLONG
    return True


def unreadable(file: Path, error: OSError | ValueError | MemoryError) -> UnreadableFileError:
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
    else:
        reason = "its name is none that a file can have" if isinstance(error, ValueError) else "no memory is left"
    return UnreadableFileError(f"{file} cannot be read ({reason}).", "Check the file and its permissions.")
