"""The folder of GPU packs: what lies there, which pack is active, and the lock of whoever changes it.

::

    gpu/active.json          the pack in use; written by engine/services/packs/start.py
    gpu/lock                 held while a pack is made, repaired or removed
    gpu/HASH/                an installed pack: an environment, with pack.json
    gpu/HASH.part/wheels/    what was fetched for a pack that is not finished; .incomplete files go on where they end
    gpu/HASH.removing        on its way out
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from engine.base.fetching import lock as one_process
from engine.base.files import UnreadableFileError, decode_file
from engine.library import paths as config
from engine.services.packs import start
from engine.services.packs.lists import PackFailed, PackList

LOCK_WAIT = 5.0
"""Seconds that a second command waits: an installer that was killed may have left its uv at the last files."""
_PACK = re.compile(r"([0-9a-f]{16})(\.part|\.removing)?")


class PackReceipt(msgspec.Struct, frozen=True):
    """``pack.json`` of an installed pack. ``records``: sha256 of each wheel's RECORD, by the wheel's file name.

    ``device``: what its list says it is for. ``libraries``: the size of each shared library, by its path in the pack.
    ``broken``: why its files cannot be relied on, as a sentence; "" if they can.
    """

    kind: str
    python: str
    records: dict[str, str]
    broken: str = ""
    device: str = ""
    libraries: dict[str, int] = {}


def folder_of(pack: PackList) -> Path:
    """Folder of a pack once it is installed."""
    return config.packs_folder() / pack.hash


def part_of(pack: PackList) -> Path:
    """Folder in which a pack is made."""
    return config.packs_folder() / f"{pack.hash}.part"


def active() -> dict[str, Any]:
    """Read ``active.json`` (see :mod:`engine.services.packs.start`); empty if it names no installed pack."""
    try:
        named = start.read_active(config.packs_folder()) or {}
    except start.NotUsed:
        return {}
    found = _PACK.fullmatch(str(named.get("folder", "")))
    return named if found and not found[2] and read_receipt(config.packs_folder() / found[0]) else {}


def deactivate(folder: str = "") -> None:
    """No pack is in use any more; with a ``folder`` only if it was that one."""
    named: dict[str, Any] = {}
    with contextlib.suppress(start.NotUsed):
        named = start.read_active(config.packs_folder()) or {}
    if not folder or named.get("folder") == folder:
        (config.packs_folder() / "active.json").unlink(missing_ok=True)


def read_receipt(folder: Path) -> PackReceipt | None:
    """The receipt of the installed pack in ``folder``; None where there is none."""
    with contextlib.suppress(UnreadableFileError):
        return decode_file(folder / "pack.json", PackReceipt)
    return None


def write_receipt(folder: Path, receipt: PackReceipt) -> None:
    """Write the receipt, all of it or nothing. Raises OSError."""
    new = folder / "pack.json.new"
    with new.open("w", encoding="utf-8") as file:
        file.write(json.dumps(msgspec.to_builtins(receipt), indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / "pack.json")


def packs() -> list[Path]:
    """Every folder that belongs to a pack, finished or not."""
    with contextlib.suppress(OSError):
        return sorted(path for path in config.packs_folder().iterdir() if path.is_dir() and _PACK.fullmatch(path.name))
    return []


def remove(folder: Path) -> None:
    """Delete a folder of :func:`packs`. Raises :class:`PackFailed` where the system keeps what is in use."""
    bare = folder.name.split(".")[0]
    if folder.name == bare:
        deactivate(bare)
    leaving = folder.with_name(f"{bare}.removing")
    try:
        if leaving != folder:
            _delete(leaving)
            folder.rename(leaving)  # at once: half a pack must not look like one
        _delete(leaving)
    except PermissionError as error:
        raise PackFailed(
            f"{folder} cannot be removed ({error.strerror}). Close Kvasir if it uses this pack, and try again."
        ) from None


def _delete(folder: Path) -> None:
    """Delete a folder with its contents. What a link points to lies outside, and its owner put it there: it stays."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)


def clear_removed() -> None:
    """Finish removals that were broken off."""
    for path in packs():
        if path.suffix == ".removing":
            remove(path)


@contextlib.contextmanager
def lock() -> Iterator[int]:
    """Hold the lock; yields its descriptor, for children that go on if this process is killed.

    Raises :class:`PackFailed` if another process holds it for more than :data:`LOCK_WAIT` seconds.
    """
    config.data_folder()  # made for the user alone: chats come to lie there
    folder = config.packs_folder()
    folder.mkdir(exist_ok=True, mode=0o700)
    busy = PackFailed(
        "Another Kvasir is installing, repairing or removing a GPU pack. Wait until it is done, or stop it, and try "
        "again."
    )
    with one_process.lock(folder / "lock", busy, LOCK_WAIT) as descriptor:
        yield descriptor
