"""Where tests write: into the folder for temporary files, or into build/tmp of the repository where that is full."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

ELSEWHERE = Path(__file__).resolve().parents[2] / "build" / "tmp"
NEEDED = 2 * 10**9
"""Bytes on disk that a whole run may need: 14,000 cases held 0.7 GB at once."""
_SAID = pytest.StashKey[str]()


def place() -> tuple[str, str]:
    """The folder to write into, and a sentence where it is not the usual one. Raises OSError where none has room."""
    usual = tempfile.gettempdir()
    if (free := shutil.disk_usage(usual).free) >= NEEDED:
        return usual, ""
    ELSEWHERE.mkdir(parents=True, exist_ok=True)
    full = f"{usual} has {free / 1e9:.1f} GB free, of the {NEEDED / 1e9:.0f} that a whole run needs"
    if shutil.disk_usage(ELSEWHERE).free < NEEDED:
        raise OSError(f"{full}, and {ELSEWHERE} has no more. Set TMPDIR to a folder with room.")
    return str(ELSEWHERE), f"{full}: tests write into {ELSEWHERE}."


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return  # it has the environment of the process that started it
    try:
        folder, config.stash[_SAID] = place()
    except OSError as error:
        pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)
    if config.stash[_SAID]:
        os.environ["TMPDIR"] = tempfile.tempdir = folder


def pytest_report_header(config: pytest.Config) -> str | None:
    return config.stash.get(_SAID, "") or None
