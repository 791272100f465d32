"""Making a pack's environment of its wheels, with uv; nothing of the user's Python settings leaks in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from engine.base import installation
from engine.services.packs.lists import PackFailed, Wheel

KEPT_BY_WINDOWS = ("SYSTEMROOT", "SYSTEMDRIVE", "TEMP", "TMP")


def find_uv() -> Path:
    """The uv to make packs with. Raises :class:`PackFailed` where there is none."""
    bundled = installation.uv()
    if bundled is not None and bundled.is_file():
        return bundled
    own = Path(sys.executable).parent / ("uv.exe" if sys.platform == "win32" else "uv")
    found = str(own) if own.is_file() and not installation.packaged() else shutil.which("uv")
    if found is None:
        raise PackFailed(
            "uv, which makes GPU packs, is missing. Install Kvasir again, or install uv (pip install uv) and try again."
        )
    return Path(found)


def find_python() -> Path:
    """The Python to make packs with. Raises :class:`PackFailed` where there is none."""
    python = installation.python()
    if not python.is_file():
        raise PackFailed(f"The Python for GPU packs is missing ({python}). Install Kvasir again.")
    return python


def new_environment(folder: Path, home: Path, lock: int) -> None:
    """An environment in ``folder``; one that is there keeps its libraries and gets the interpreter of this program,
    which may have moved. ``home``: where uv may write. Raises :class:`PackFailed`.
    """
    arguments = ["venv", "--no-project", "--relocatable", "--allow-existing", "--python", str(find_python())]
    _run_uv([*arguments, str(folder)], home, lock)


def install(folder: Path, wheels: Iterable[Wheel], files: Path, home: Path, lock: int) -> None:
    """Unpack wheels that lie in ``files`` into the environment. Raises :class:`PackFailed`."""
    home.mkdir(parents=True, exist_ok=True)
    wanted = home / "wheels.txt"
    lines = [f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}" for wheel in wheels]
    wanted.write_text("\n".join(lines) + "\n", encoding="utf-8")
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    arguments = ["pip", "install", "--python", str(python), "--no-index", "--find-links", str(files)]
    _run_uv([*arguments, "--no-deps", "--require-hashes", "--requirement", str(wanted)], home, lock)


def _run_uv(arguments: Sequence[str], home: Path, lock: int) -> None:
    home.mkdir(parents=True, exist_ok=True)
    # The child holds the lock too: if this process is killed, no other one begins before uv has ended.
    held = () if sys.platform == "win32" else (lock,)
    process = subprocess.Popen(
        [str(find_uv()), "--no-config", *arguments],
        env=_environment(home),
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=held,
    )
    try:
        _, complaint = process.communicate()
    except BaseException:
        process.kill()
        process.communicate()
        raise
    if process.returncode:
        if b"No space left" in complaint or b"os error 28" in complaint:
            raise OSError(28, os.strerror(28), str(home))
        last_lines = complaint.decode("utf-8", "replace").strip().splitlines()[-4:]
        reason = " ".join(line.strip() for line in last_lines).rstrip(".")
        raise PackFailed(f"uv could not make the pack: {reason}. Start again; what was downloaded is kept.")


def _environment(home: Path) -> dict[str, str]:
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
