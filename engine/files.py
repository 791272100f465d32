"""Files of a model's folder, opened with care: only regular ones, and what is read whole only up to a size.

A pipe would wait for ever, and a device need not end.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from engine.errors import CheckpointError

MAX_JSON = 4 << 20
"""Bytes of a configuration; the longest known lists of modules take a tenth."""
REPAIR = "Download the model again, or repair the file."
_KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))


def regular_size(file: Path) -> int:
    """Bytes of a regular file, or of the one that a link leads to.

    Raises :class:`CheckpointError` for anything else, and FileNotFoundError where there is nothing.
    """
    try:
        status = os.stat(file)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise unreadable(file, error) from error
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for check, name in _KINDS if check(status.st_mode)), "a device")
        raise CheckpointError(f"{file} is {kind}, where a file is needed. Download the model again.")
    return status.st_size


def read_small(file: Path, most: int) -> bytes | None:
    """All of a file of at most ``most`` bytes; None where there is none. Raises :class:`CheckpointError`."""
    try:
        regular_size(file)
        with file.open("rb") as stream:
            raw = stream.read(most + 1)  # what a file says of its size need not be so
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(file, error) from error
    if len(raw) > most:
        raise CheckpointError(f"{file} has more than {most:,} bytes, which no such file needs. {REPAIR}")
    return raw


def read_text(file: Path, most: int) -> str | None:
    """The text of :func:`read_small`."""
    raw = read_small(file, most)
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{file} is no text in UTF-8 (at byte {error.start:,}). {REPAIR}") from error


def read_json(file: Path, most: int = MAX_JSON) -> dict[str, Any] | None:
    """The object in a JSON file; None where there is no such file. Raises :class:`CheckpointError`."""
    text = read_text(file, most)
    if text is None:
        return None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno:,}, column {error.colno:,}"
        raise CheckpointError(f"{file} is no valid JSON ({where}). {REPAIR}") from error
    except RecursionError as error:
        raise CheckpointError(f"{file} is nested too deeply. {REPAIR}") from error
    except ValueError as error:
        raise CheckpointError(f"{file} holds a number of too many digits. {REPAIR}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{file} holds no JSON object. {REPAIR}")
    return value


def unreadable(file: Path, error: OSError | ValueError) -> CheckpointError:
    reason = error.strerror if isinstance(error, OSError) else "its name is none that a file can have"
    return CheckpointError(f"{file} cannot be read ({reason}). Check the file and its permissions.")
