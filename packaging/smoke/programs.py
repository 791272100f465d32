"""How Kvasir's programs are started, whatever they were installed from."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Programs:
    """Beginnings of command lines, as seen inside; ``cwd`` is where they are started, None for the home."""

    kvasir: tuple[str, ...]
    window: tuple[str, ...]
    cwd: str | None = None


FIELD_CODES = {"%f", "%F", "%u", "%U", "%i", "%c", "%k"}
"""What a desktop puts files, addresses and names in place of (Desktop Entry Specification, "The Exec key")."""


def exec_line(desktop_file: Path) -> tuple[str, ...]:
    """What the menu starts when nothing was chosen to be opened. Raises ValueError without an Exec line."""
    group = ""
    for line in desktop_file.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            group = line.strip()
        elif group == "[Desktop Entry]" and line.split("=")[0].strip() == "Exec":
            words = shlex.split(line.partition("=")[2])
            return tuple(word.replace("%%", "%") for word in words if word not in FIELD_CODES)
    raise ValueError(f"{desktop_file} has no Exec line")


def from_deb(root: Path) -> Programs:
    """As installed: by its name in a terminal, by its menu entry on the desktop."""
    return Programs(("kvasir",), exec_line(root / "usr/share/applications/kvasir.desktop"))


def from_folder(folder: str) -> Programs:
    """As unpacked into ``folder``."""
    return Programs((f"{folder}/kvasir",), (f"{folder}/kvasir-window",))


def from_source(python: str, checkout: str) -> Programs:
    """A checkout, run by the Python of its environment."""
    return Programs((python, "-m", "engine.doors.cli.main"), (python, "-m", "app"), checkout)
