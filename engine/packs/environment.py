"""The environment in which a GPU pack is made: nothing of the user's Python settings leaks in."""

from __future__ import annotations

import os
from pathlib import Path

KEPT_BY_WINDOWS = ("SYSTEMROOT", "SYSTEMDRIVE", "TEMP", "TMP")


def for_tools(home: Path) -> dict[str, str]:
    """The environment of uv, made from nothing: it writes to ``home`` alone, offline, and reads no settings."""
    return {
        **{name: os.environ[name] for name in KEPT_BY_WINDOWS if name in os.environ},
        "PATH": os.defpath,
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "UV_NO_CONFIG": "1",
        "UV_OFFLINE": "1",
        "UV_CACHE_DIR": str(home / "cache"),
        # Unpacked once, in the cache, and linked from there: the disk holds it once.
        "UV_LINK_MODE": "hardlink",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
    }
