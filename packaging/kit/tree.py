"""A folder as a package holds it: names in a fixed order, modes that depend on nothing but the kind of file."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

_SHARED = re.compile(r"\.so(\.[0-9.]+)?$")


def walk(folder: Path) -> Iterator[Path]:
    """Everything below a folder, each folder before what it holds, names in the order of their bytes."""
    for entry in sorted(os.scandir(folder), key=lambda entry: os.fsencode(entry.name)):
        path = Path(entry.path)
        yield path
        if entry.is_dir(follow_symlinks=False):
            yield from walk(path)


def files(folder: Path) -> list[Path]:
    """Every file below a folder that is no link, in the order of :func:`walk`."""
    return [path for path in walk(folder) if path.is_file() and not path.is_symlink()]


@contextlib.contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """An empty folder that is gone afterwards; a former run that was killed may have left it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def mode(path: Path) -> int:
    """0755 for folders and what can be run, 0644 for the rest and for shared libraries, whatever the umask was."""
    if path.is_symlink():
        return 0o777
    if path.is_dir():
        return 0o755
    runs = path.stat().st_mode & 0o100 and not _SHARED.search(path.name)
    return 0o755 if runs else 0o644


def check_links(folder: Path) -> None:
    """Raises ValueError for a symlink that leads out of the folder, or nowhere: it would break on another machine."""
    for path in walk(folder):
        if not path.is_symlink():
            continue
        target = os.readlink(path)
        inside = (path.parent / target).resolve().is_relative_to(folder.resolve())
        if os.path.isabs(target) or not inside or not path.exists():
            raise ValueError(f"{path.relative_to(folder)} is a link to {target}, which the package does not hold.")


def copy(source: Path, place: Path, leave_out: tuple[str, ...] = ()) -> None:
    """Copy a folder with the modes of :func:`mode`; ``leave_out`` names entries of its top level."""
    place.mkdir(parents=True, exist_ok=True)
    for path in walk(source):
        relative = path.relative_to(source)
        if relative.parts[0] in leave_out:
            continue
        target = place / relative
        if path.is_symlink():
            target.symlink_to(os.readlink(path))
        elif path.is_dir():
            target.mkdir(exist_ok=True)
        else:
            shutil.copyfile(path, target)
            target.chmod(mode(path))


def settle(folder: Path, epoch: int) -> None:
    """Give everything below ``folder``, and itself, its mode and one time."""
    for path in [*walk(folder), folder]:
        if not path.is_symlink():
            path.chmod(mode(path))
        os.utime(path, (epoch, epoch), follow_symlinks=False)
