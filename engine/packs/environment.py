"""Environments of the processes that make and use a GPU pack: nothing of the user's Python settings leaks in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SETTINGS = ("PYTHON", "PIP_", "UV_", "VIRTUAL_ENV", "CONDA", "__PYVENV", "_PYI", "PYINSTALLER")
"""What variables begin with that tell a Python, or its tools, where to look."""
KEPT_BY_WINDOWS = ("SYSTEMROOT", "SYSTEMDRIVE", "TEMP", "TMP")


def for_tools(home: Path) -> dict[str, str]:
    """For uv: made from nothing. It keeps all it writes in ``home``, asks no network, and reads no settings."""
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


def for_engine(environment: Mapping[str, str]) -> dict[str, str]:
    """For an engine started from a pack: the user's, less what would change which Python and modules it takes."""
    kept = {name: value for name, value in environment.items() if not name.startswith(SETTINGS)}
    # A packaged program sets this for its own libraries, and keeps what the user had.
    original = kept.pop("LD_LIBRARY_PATH_ORIG", None)
    if original is not None:
        kept["LD_LIBRARY_PATH"] = original
    elif "_PYI_APPLICATION_HOME_DIR" in environment:
        kept.pop("LD_LIBRARY_PATH", None)
    return kept
