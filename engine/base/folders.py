"""Locations of a user's files; creates none of them. Light: the command line reads it before anything else.

``KVASIR_HOME`` replaces all of the system's folders by subfolders of one folder.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

SYSTEM = platformdirs.PlatformDirs("kvasir", appauthor=False)
"""The folders that the system has for a user's programs."""


def place(sub: str, default: Path) -> Path:
    """The subfolder of ``KVASIR_HOME``, else the system's ``default``; whether it is there or not."""
    home = os.environ.get("KVASIR_HOME", "")
    return Path(home) / sub if home else default


def data_place() -> Path:
    """Folder of the data that a user's Kvasir keeps."""
    return place("data", SYSTEM.user_data_path)


def cache_place() -> Path:
    """Folder of files that can be made again."""
    return place("cache", SYSTEM.user_cache_path)


def packs_place() -> Path:
    """GPU packs, each in a folder named by the hash of its list, and ``active.json``, which names the one in use."""
    return data_place() / "gpu"
