"""Copies of the history next to it: ``history.db.before-N`` from before the upgrade to schema N,
``history.db.unread-N`` from before cells that could not be read were replaced."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sqlite3
from collections.abc import Iterable
from pathlib import Path

log = logging.getLogger(__name__)

BEFORE, UNREAD = "before", "unread"
"""Reasons for a copy, which stand in its name: an upgrade, or cells that could not be read."""
KEPT = {BEFORE: 2, UNREAD: 8}
"""Number of copies of each kind that stay, the latest; what one of the UNREAD was made for is mended in later ones."""
UNFINISHED = ".unfinished"
_VERSION_AT = 60
"""Offset of user_version in a database's header, 4 bytes, big-endian (sqlite.org/fileformat.html)."""


def make(connection: sqlite3.Connection, path: Path, found_schema: int, target: int) -> Path | None:
    """Copy the history that ``connection`` has open, at ``path``, before it is brought to schema ``target``.

    The copy is whole, on the disk and one file when this returns. None where another process changed the schema
    meanwhile, which then made its own. Raises sqlite3.Error, OSError.
    """
    copy = path.with_name(f"{path.name}.before-{target}")
    if not _copy(connection, path, copy, found_schema):
        return None
    _prune(path, BEFORE)
    return copy


def keep(connection: sqlite3.Connection, path: Path) -> Path:
    """Copy the history before cells that cannot be read are replaced: ``history.db.unread-1``, ``-2`` and so on.

    Raises sqlite3.Error, OSError.
    """
    number = 1 + max((_number(copy) for copy in found(path, UNREAD)), default=0)
    copy = path.with_name(f"{path.name}.{UNREAD}-{number}")
    _copy(connection, path, copy, None)
    _prune(path, UNREAD)
    return copy


def restore(connection: sqlite3.Connection, path: Path) -> None:
    """Write the history that ``connection`` has open to ``path``, from where its file was removed meanwhile.

    Raises sqlite3.Error, OSError.
    """
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    for suffix in ("-wal", "-shm"):  # of the file that is gone
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    _copy(connection, path, path, None)


def found(path: Path, why: str = BEFORE) -> list[Path]:
    """The copies of the history at ``path``, the latest first: those of upgrades, or those of UNREAD cells."""
    with contextlib.suppress(OSError):
        name = re.compile(re.escape(f"{path.name}.{why}") + r"-\d+")
        return sorted((file for file in path.parent.iterdir() if name.fullmatch(file.name)), key=_number, reverse=True)
    return []


def readable(path: Path, version: int) -> Path | None:
    """The latest copy whose schema is at most ``version``."""
    return next((copy for copy in found(path) if 0 < _schema_of(copy) <= version), None)


def forget(path: Path, chats: Iterable[str]) -> None:
    """Remove chats from the copies too: what a person deletes is not to lie about elsewhere."""
    ids = [(chat,) for chat in chats]
    for copy in [*found(path), *found(path, UNREAD)] if ids else []:
        try:
            with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as connection:
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("PRAGMA secure_delete = ON")  # nor in pages that came free
                connection.executemany("DELETE FROM chats WHERE id = ?", ids)
        except sqlite3.Error as error:
            log.warning("deleted chats could not be removed from %s: %s", copy, error)


def _copy(connection: sqlite3.Connection, path: Path, copy: Path, schema: int | None) -> bool:
    """False where the schema is not ``schema`` any more."""
    unfinished = copy.with_name(copy.name + UNFINISHED)
    _sweep(path)
    try:
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as out:
            connection.backup(out)
            # The pages say that there is a write-ahead log; the copy needs none, and is then opened without any.
            out.execute("PRAGMA journal_mode = DELETE")
        if schema is not None and _schema_of(unfinished) != schema:
            _sweep(path)
            return False
        _sync(unfinished)
        os.replace(unfinished, copy)
    except BaseException:
        _sweep(path)
        raise
    if os.name == "posix":
        _sync(path.parent)
    return True


def _prune(path: Path, why: str) -> None:
    for old in found(path, why)[KEPT[why] :]:
        with contextlib.suppress(OSError):
            old.unlink()


def _number(copy: Path) -> int:
    return int(copy.name.rsplit("-", 1)[1])


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
    """Delete what a copy that ended early left behind, SQLite's own files next to it too."""
    for file in path.parent.glob(f"{path.name}*{UNFINISHED}*"):
        with contextlib.suppress(OSError):
            file.unlink()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
