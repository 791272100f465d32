"""Where things are while a package is made, and the names of what comes out."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
LINUX = PACKAGING / "linux"
BUILD = ROOT / "build" / "package"
DIST = ROOT / "dist"
VENV = BUILD / "venv"
STAGE = BUILD / "stage"
"""A copy of the tracked sources, so that nothing is written into the checkout."""
PROGRAM = BUILD / "kvasir"
"""The finished folder: programs, _internal/, python/, tools/, share/."""
PROGRAMS = ("kvasir", "kvasir-window", "kvasir-engine")
WINDOWS = sys.platform == "win32"


def version() -> str:
    """The version of pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def epoch() -> int:
    """Seconds since 1970 that every file of a package bears: SOURCE_DATE_EPOCH, else the last commit's time."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    asked = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    if asked.returncode:
        raise SystemExit("This is no git checkout: set SOURCE_DATE_EPOCH to the time that the files shall bear.")
    return int(asked.stdout)


def venv_program(name: str) -> Path:
    """A program of the build environment."""
    return VENV / ("Scripts" if WINDOWS else "bin") / (name + ".exe" if WINDOWS else name)


def internal(program: Path = PROGRAM) -> Path:
    """What the programs of a finished folder share."""
    return program / "_internal"
