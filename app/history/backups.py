"""Copies of the history from before an upgrade, beside it: ``history.db.before-N`` was made on the way to schema N."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sqlite3
from collections.abc import Iterable
from pathlib import Path

log = logging.getLogger(__name__)

KEPT = 2
"""So many copies stay, those of the latest upgrades."""
UNFINISHED = ".unfinished"
_VERSION_AT = 60
"""Where a database's header has its user_version, 4 bytes, big-endian (sqlite.org/fileformat.html)."""


def make(connection: sqlite3.Connection, path: Path, found_schema: int, target: int) -> Path | None:
    """Copy the history that ``connection`` has open, at ``path``, before it is brought to schema ``target``.

    The copy is whole, on the disk and one file when this returns. None where another process changed the schema
    meanwhile, which then made its own. Raises sqlite3.Error, OSError.
    """
    copy = path.with_name(f"{path.name}.before-{target}")
    unfinished = copy.with_name(copy.name + UNFINISHED)
    _sweep(path)
    try:
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as out:
            connection.backup(out)
            # The pages say that there is a write-ahead log; the copy needs none, and is then opened without any.
            out.execute("PRAGMA journal_mode = DELETE")
        if _schema_of(unfinished) != found_schema:
            _sweep(path)
            return None
        _sync(unfinished)
        os.replace(unfinished, copy)
    except BaseException:
        _sweep(path)
        raise
    if os.name == "posix":
        _sync(path.parent)
    for old in found(path)[KEPT:]:
        with contextlib.suppress(OSError):
            old.unlink()
    return copy


def found(path: Path) -> list[Path]:
    """The copies of the history at ``path``, that of the latest upgrade first."""
    copies = {}
    with contextlib.suppress(OSError):
        for file in path.parent.iterdir():
            match = re.fullmatch(re.escape(path.name) + r"\.before-(\d+)", file.name)
            if match:
                copies[int(match[1])] = file
    return [copies[number] for number in sorted(copies, reverse=True)]


def readable(path: Path, version: int) -> Path | None:
    """The latest copy whose schema is at most ``version``."""
    return next((copy for copy in found(path) if 0 < _schema_of(copy) <= version), None)


def forget(path: Path, chats: Iterable[str]) -> None:
    """Remove chats from the copies too: what a person deletes is not to lie about elsewhere."""
    ids = [(chat,) for chat in chats]
    for copy in found(path) if ids else []:
        try:
            with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as connection:
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("PRAGMA secure_delete = ON")  # nor in pages that came free
                connection.executemany("DELETE FROM chats WHERE id = ?", ids)
        except sqlite3.Error as error:
            log.warning("deleted chats could not be removed from %s: %s", copy, error)


def _schema_of(file: Path) -> int:
    """0 for what is no database."""
    try:
        with file.open("rb") as stream:
            header = stream.read(100)
    except OSError:
        return 0
    if not header.startswith(b"SQLite format 3\0"):
        return 0
    return int.from_bytes(header[_VERSION_AT : _VERSION_AT + 4], "big")


def _sweep(path: Path) -> None:
    """Delete what an upgrade that ended early left behind, SQLite's own files beside it too."""
    for file in path.parent.glob(f"{path.name}.before-*{UNFINISHED}*"):
        with contextlib.suppress(OSError):
            file.unlink()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
