"""The program itself, as far as `kvasir uninstall` is concerned: what kind of installation it is and how it goes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal, NamedTuple

from engine.base.installation import WINDOWS, program_folder, without_own_libraries
from engine.doors.cli.installation import desktop
from engine.doors.cli.installation.inventory import remove, size_of

PARTS = ("kvasir", "kvasir-window", "kvasir-engine", "_internal", "python", "tools", "share", "README")
"""What a portable folder holds; what else lies there was put there by its user."""
APT = ("apt-get", "remove", "kvasir")


class Installation(NamedTuple):
    kind: Literal["portable", "debian", "installer", "environment"]
    folder: Path | None
    """The program's folder, None in a Python environment."""
    says: str
    """How it is removed where Kvasir cannot do it, as a sentence."""


def installation() -> Installation:
    folder = program_folder()
    if folder is None:
        return Installation("environment", None, "The program itself is a Python package: pip uninstall kvasir")
    if WINDOWS or sys.platform == "darwin":
        where = "in Settings, under Installed apps" if WINDOWS else "by dragging it from Applications to the bin"
        return Installation("installer", folder, f"The program itself is removed {where}.")
    if desktop.of_a_package(folder):
        return Installation("debian", folder, "The program itself is removed by: sudo apt remove kvasir")
    return Installation("portable", folder, f"The program itself is the folder {folder}. Delete it when you like.")


def size(found: Installation) -> int:
    """Bytes of the program."""
    return 0 if found.folder is None else sum(size_of(path) for path in _parts(found.folder))


def apt_command() -> list[str] | None:
    """Command that removes the package, asking for a password in a window or this terminal; None if neither can."""
    if shutil.which("pkexec") and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return ["pkexec", *APT, "-y"]
    if shutil.which("sudo") and sys.stdin.isatty():
        return ["sudo", *APT]
    return None


def remove_package(command: list[str]) -> list[str]:
    """Run it; a sentence if it fails."""
    try:
        code = subprocess.run(command, env=without_own_libraries(os.environ), check=False).returncode
    except OSError as error:
        return [f"{command[0]} could not be started ({error.strerror}). Run: sudo apt remove kvasir"]
    return [f"{' '.join(command)} ended with status {code}. Run: sudo apt remove kvasir"] if code else []


def remove_folder(folder: Path) -> list[str]:
    """Delete the parts of a portable folder, and it if nothing else is in it; a sentence for each that stays.

    Nothing may be imported after this: modules lie in it.
    """
    failed = [sentence for path in _parts(folder) for sentence in remove(path)]
    with contextlib.suppress(OSError):
        folder.rmdir()
    return failed


def _parts(folder: Path) -> list[Path]:
    """[] for a folder that does not look like the program's."""
    if not ((folder / "_internal").is_dir() and (folder / "kvasir-engine").is_file()):
        return []
    return [folder / name for name in PARTS if os.path.lexists(folder / name)]
