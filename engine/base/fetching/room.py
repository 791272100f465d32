"""Room on the disk, and sizes for people."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from engine.base.fetching.errors import FetchFailed
from engine.base.sizes import human

MARGIN = 256 * 10**6
"""Bytes that are left free on the disk."""


def free_bytes(folder: Path) -> int:
    """Free bytes on the disk where ``folder`` is or would be."""
    return disk_of(folder).free


def disk_of(folder: Path) -> shutil._ntuple_diskusage:
    """``total``, ``used`` and ``free`` bytes of the disk where ``folder`` is or would be."""
    return shutil.disk_usage(_nearest(folder))


def room_for(folder: Path, needed: int, what: str) -> None:
    """Raises :class:`FetchFailed` if the disk of ``folder`` has less than ``needed`` bytes free."""
    free = free_bytes(folder)
    if free < needed:
        raise FetchFailed(
            f"There is not enough room in {_nearest(folder)}: {what} needs {human(needed)}, and {human(free)} "
            f"are free. Free {human(needed - free)} and start again."
        )


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Say in a sentence (:class:`FetchFailed`) that the disk of ``folder`` is full, cannot hold so large a file, or
    refuses for another reason."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise FetchFailed(
                f"The disk of {folder} cannot hold a file as large as this. One formatted as exFAT or ext4 can."
            ) from None
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise FetchFailed(
                f"The disk of {folder} is full. Free some room and start again; what was downloaded is kept."
            ) from None
        if error.errno == errno.ENAMETOOLONG:
            raise FetchFailed(
                f"The disk of {folder} takes no names as long as {_name(error)}. Choose another folder for downloads: "
                "kvasir models folders --downloads PATH."
            ) from None
        if isinstance(error, BrokenPipeError) or not error.strerror:
            raise
        where = error.filename or folder
        raise FetchFailed(
            f"{where} cannot be used ({error.strerror}). Check that it is there, its permissions and its disk."
        ) from None


def _name(error: OSError) -> str:
    return Path(os.fsdecode(error.filename)).name if error.filename else "this"


def same_disk(one: Path, other: Path) -> bool:
    """Return True if two folders, existing or not, are on one file system."""
    return _nearest(one).stat().st_dev == _nearest(other).stat().st_dev


def _nearest(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
