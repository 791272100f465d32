"""A checkout in its environment, under the same harness: for comparing, and to try the harness without a package."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from smoke.programs import Programs, from_source
from smoke.sandbox import UID, Bind, Sandbox


def on_this_machine(folder: Path, binds: tuple[Bind, ...] = ()) -> Sandbox:
    """This machine's system, read-only, with an empty home of its own below ``folder``."""
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    os.chown(home, UID, UID)
    return Sandbox(Path("/"), host=True, binds=(Bind(home, "/home/u", writable=True), *binds))


def base(python: Path) -> Path:
    """The installation behind an environment's Python."""
    command = [str(python), "-c", "import sys; print(sys.base_prefix)"]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


def interpreter(python: Path) -> tuple[Bind, ...]:
    """The installation behind an environment's Python, where an ordinary user cannot reach it."""
    folder = base(python)
    hidden = any(not parent.stat().st_mode & 0o001 for parent in [folder, *folder.parents])
    return (Bind(folder, str(folder)),) if hidden else ()


def checkout(python: Path, root: Path, folder: Path) -> tuple[Sandbox, Programs]:
    """``root`` run by ``python``, with a home of its own below ``folder``."""
    environment = python.parent.parent.resolve()  # which may be linked from elsewhere
    seen = [Bind(path, str(path)) for path in dict.fromkeys([root, environment])]  # also where homes are hidden
    return on_this_machine(folder, (*seen, *interpreter(python))), from_source(str(python), str(root))
