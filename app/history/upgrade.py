"""Opening a history of another version: an earlier one is copied and brought up to date, a later one is refused."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

from app import version
from app.history import backups
from app.history.schema import VERSION, MigrationError, Tell, TooNewError, migrate, version_of
from app.language import tr

log = logging.getLogger(__name__)

_COPIED = 0.1
"""The share of the work that is done with the copy, about."""


def refuse_later(connection: sqlite3.Connection, path: Path) -> None:
    """Raises TooNewError where a later version of Kvasir wrote the history at ``path``; changes nothing."""
    found = version_of(connection)
    if found <= VERSION:
        return
    last = version.last_used(path.parent)
    by = f"Kvasir {last}" if last and last != version.installed() else tr("a later version of Kvasir", "written by")
    sentence = tr(
        "The history at {path} was written by {by} (schema {found}), and this is Kvasir {installed} (schema {known}), "
        "which cannot read it. Nothing was changed: install the later version again.",
        path=path,
        by=by,
        found=found,
        installed=version.installed(),
        known=VERSION,
    )
    copy = backups.readable(path, VERSION)
    if copy is None:
        new = tr("To begin a new history with this version, move that file elsewhere.")
        raise TooNewError(f"{sentence} {new}")
    back = tr(
        "Or go back to the chats from before the upgrade: move that file elsewhere and rename {copy} to {name}; what "
        "was said since then stays in the later file.",
        copy=copy,
        name=path.name,
    )
    raise TooNewError(f"{sentence} {back}")


def is_earlier(connection: sqlite3.Connection) -> bool:
    """True for a history of an earlier version, False for an empty one too."""
    return 0 < version_of(connection) < VERSION


def upgrade(connection: sqlite3.Connection, path: Path, tell: Tell = lambda _: None) -> None:
    """Bring the history at ``path`` up to date, a copy of it first. Raises MigrationError, and sqlite3.Error where the
    file cannot be read."""
    found = version_of(connection)
    if found >= VERSION:
        return
    if not found:  # nothing was ever in it
        migrate(connection)
        return
    try:
        copy = backups.make(connection, path, found, VERSION)
    except (sqlite3.Error, OSError) as error:
        raise MigrationError(
            tr(
                "The history at {path} is of an earlier version, and could not be copied before it is brought up to "
                "date ({why}). It was left as it was. Free {size} on that disk and allow writing there.",
                path=path,
                why=error,
                size=_megabytes(path),
            )
        ) from error
    if copy is None:
        upgrade(connection, path, tell)
        return
    tell(_COPIED)
    try:
        migrate(connection, lambda share: tell(_COPIED + (1 - _COPIED) * share))
    except sqlite3.Error as error:
        raise MigrationError(
            tr(
                "The history at {path} could not be brought up to date ({why}). It was left as it was, and {copy} is a "
                "copy of it. Free some space and start again; to begin a new history, move the file elsewhere.",
                path=path,
                why=error,
                copy=copy,
            )
        ) from error
    log.info("the history was brought from schema %d to %d; %s is as it was before", found, VERSION, copy)


def _megabytes(path: Path) -> str:
    """Space an upgrade takes: a copy, and the log of a migration that may write every page again."""
    return f"{max(1, round(2 * path.stat().st_size / 1e6))} MB"
