"""The archive that is unpacked anywhere."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from smoke.roots import run
from smoke.sandbox import UID

PLACE = "/home/u/My Prögrams/Kvasir ユ"


def unpack(archive: Path, folder: Path) -> Path:
    """Into ``folder``, for the ordinary user; the program's own folder in it. Raises ValueError if there are more."""
    folder.mkdir(parents=True)
    run(["tar", "--zstd", "--no-same-owner", "-C", str(folder), "-xf", str(archive)])
    for path in (folder.parent, folder):
        os.chown(path, UID, UID)
    run(["chown", "-R", f"{UID}:{UID}", str(folder)])
    inside = list(folder.iterdir())
    if len(inside) != 1 or not inside[0].is_dir():
        raise ValueError(f"{archive.name} should hold one folder and holds {[path.name for path in inside]}")
    return inside[0]


def read_only(folder: Path) -> None:
    run(["chmod", "-R", "a-w", str(folder)])


def installed_size(folder: Path) -> int:
    """Bytes, each file once."""
    out = subprocess.run(["du", "-sb", str(folder)], capture_output=True, text=True, check=True).stdout
    return int(out.split()[0])
