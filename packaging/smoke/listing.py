"""What is on a system before and after: listings, and what differs."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

SYSTEM_RECORDS = re.compile(
    r"/var/lib/(dpkg|apt|ucf|pam|systemd|polkit-1)(/|$)|/var/cache/(apt|debconf|ldconfig|fontconfig|man)(/|$)"
    r"|/var/log(/|$)|/etc/(ld\.so\.cache|resolv\.conf|mailcap|\.pwd\.lock|machine-id)$|/etc/(passwd|group|g?shadow)-?$"
)
"""What dpkg, apt and the packages' own tools write down about what was done."""
MADE_BY_TRIGGERS = re.compile(
    r"/usr/share/mime(/|$)|/usr/share/applications/(mimeinfo\.cache|.*\.list)$|icon-theme\.cache$|giomodule\.cache$"
    r"|gschemas\.compiled$|loaders\.cache$|/usr/share/icons/[^/]+$|__pycache__|\.pyc$|/usr/share/info/dir"
)
"""What other packages make out of what is installed: theirs, but looked into for our names."""
OTHERS_CACHES = re.compile(r"/\.cache/(fontconfig|mesa_shader_cache\w*|qtshadercache[^/]*)(/|$)")
"""What system libraries leave in any home in which a program of any kind ran."""


class Entry(NamedTuple):
    mode: int
    size: int
    """0 for folders."""
    modified_ns: int
    """0 for folders, whose time changes with what is in them."""
    target: str


Listing = dict[str, Entry]
"""Paths that begin with "/", seen from the folder that was listed."""


def listing(root: Path, below: str = "") -> Listing:
    """Every file, folder and link under ``root``/``below``."""
    found: Listing = {}
    folders = [root / below.strip("/")]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                folder = stat.S_ISDIR(status.st_mode)
                found["/" + os.path.relpath(entry.path, root)] = Entry(
                    status.st_mode,
                    0 if folder else status.st_size,
                    0 if folder else status.st_mtime_ns,
                    os.readlink(entry.path) if entry.is_symlink() else "",
                )
                if folder:
                    folders.append(Path(entry.path))
    return found


@dataclass(frozen=True)
class Difference:
    added: list[str]
    removed: list[str]
    changed: list[str]


def compare(before: Listing, after: Listing) -> Difference:
    return Difference(
        added=sorted(after.keys() - before.keys()),
        removed=sorted(before.keys() - after.keys()),
        changed=sorted(path for path in before.keys() & after.keys() if before[path] != after[path]),
    )


def unexplained(paths: Iterable[str]) -> list[str]:
    """Those that no tool of the system makes. Homes are another matter."""
    return [
        path
        for path in paths
        if not SYSTEM_RECORDS.search(path) and not MADE_BY_TRIGGERS.search(path) and not path.startswith("/home/")
    ]


def naming(root: Path, paths: Iterable[str], word: bytes) -> list[str]:
    """Of the files ``paths`` under ``root`` those that hold ``word``, in any case of letters, in name or content."""
    found = []
    for path in paths:
        file = root / path.lstrip("/")
        if word.lower() in path.lower().encode() or (
            file.is_file() and not file.is_symlink() and word.lower() in file.read_bytes().lower()
        ):
            found.append(path)
    return found


def files_only(paths: Iterable[str], entries: Listing) -> list[str]:
    return [path for path in paths if not stat.S_ISDIR(entries[path].mode)]
