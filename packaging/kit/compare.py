"""What differs between two program folders: ``python packaging/build.py --compare OTHER``. Standard library only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kit import tree

SHOWN = 40
"""Bytes around the first difference that a line shows."""


def differences(ours: Path, theirs: Path) -> list[str]:
    """A line for each file, folder or link that is not the same in both, sorted by name.

    Compared are what packages hold: kinds, modes as :func:`tree.mode` makes them, targets of links and bytes; times
    and owners are set when a package is made. Raises FileNotFoundError where one of the two is not a folder.
    """
    here, there = _entries(ours), _entries(theirs)
    return [
        f"{name}: {line}"
        for name in sorted(here.keys() | there.keys())
        for line in _told(here.get(name), there.get(name))
    ]


def _entries(folder: Path) -> dict[str, Path]:
    return {str(path.relative_to(folder)): path for path in tree.walk(folder)}


def _told(ours: Path | None, theirs: Path | None) -> Iterator[str]:
    if ours is None or theirs is None:
        yield "only there" if ours is None else "only here"
    elif _kind(ours) != _kind(theirs):
        yield f"a {_kind(ours)} here, a {_kind(theirs)} there"
    elif ours.is_symlink():
        if os.readlink(ours) != os.readlink(theirs):
            yield f"leads to {os.readlink(ours)} here, to {os.readlink(theirs)} there"
    else:
        if tree.mode(ours) != tree.mode(theirs):
            yield f"mode {tree.mode(ours):o} here, {tree.mode(theirs):o} there"
        if ours.is_file():
            yield from _bytes(ours.read_bytes(), theirs.read_bytes())


def _kind(path: Path) -> str:
    return "link" if path.is_symlink() else "folder" if path.is_dir() else "file"


def _bytes(ours: bytes, theirs: bytes) -> Iterator[str]:
    """How much of two contents differs, and what stands at the first place where they do."""
    if ours == theirs:
        return
    if len(ours) != len(theirs):
        yield f"{len(ours)} bytes here, {len(theirs)} there"
    places = [place for place, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b]
    first = places[0] if places else min(len(ours), len(theirs))
    start = max(0, first - SHOWN // 2)
    here, there = ours[start : start + SHOWN], theirs[start : start + SHOWN]
    yield f"{len(places)} bytes differ, the first at {first}: {here!r} here, {there!r} there"
