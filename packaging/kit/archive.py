"""The portable archive: one folder that is unpacked anywhere and run from there."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path
from typing import IO

from kit import tree

README = """Kvasir {version}

Start it:            ./kvasir
In the terminal:     ./kvasir chat      (./kvasir --help lists all commands)
Into the menu:       ./kvasir desktop install
Out of the menu:     ./kvasir desktop remove

Nothing has to be installed, and nothing outside this folder is changed by unpacking it. It may lie anywhere, also
on a stick; after moving it, run `./kvasir desktop install` again.
It needs a 64-bit x86 Linux with glibc 2.35 or newer (Debian 12, Ubuntu 22.04 and later) and the libraries of an
ordinary desktop. A missing one is named, with the package that brings it.

To remove it: `./kvasir desktop remove`, then `./kvasir uninstall`, which asks about settings, chats, models and GPU
packs one by one; then delete this folder.

How to use it: share/doc/using.md. Licences of everything in here: _internal/licences/.
"""
WINDOW = 27
"""The logarithm of the window: 128 MiB, the most that `tar --zstd -xf` unpacks without being told to."""


def build(program: Path, out: Path, version: str, epoch: int, level: int = 12) -> Path:
    """Write ``out``/kvasir-VERSION-linux-x86_64.tar.zst; the same program gives the same bytes.

    ``epoch`` (seconds) is the time of every file in it, ``level`` zstd's effort: 12, or 3, which is fast, for trials.
    Raises ValueError for a link that leads out of the program, OSError where zstd cannot be started or fails.
    """
    tree.check_links(program)
    out.mkdir(parents=True, exist_ok=True)
    place = out / f"kvasir-{version}-linux-x86_64.tar.zst"
    # One job after another on every thread: zstd's output is the same for any number of threads from one on, but
    # not the same as that of --single-thread.
    command = ["zstd", "--quiet", "--force", f"-{level}", f"--long={WINDOW}", "--threads=0"]
    with tree.scratch(out / ".archive") as scratch:
        made = scratch / place.name
        with subprocess.Popen([*command, "-o", str(made)], stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            with process.stdin as pipe:
                _write(pipe, program, f"kvasir-{version}", version, epoch)
        if process.returncode:
            raise OSError(f"zstd ended with status {process.returncode}.")
        made.replace(place)
    return place


def _write(pipe: IO[bytes], program: Path, top: str, version: str, epoch: int) -> None:
    with tarfile.open(fileobj=pipe, mode="w|", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(_entry(program, top, epoch))
        readme = README.format(version=version).encode()
        entry = tarfile.TarInfo(f"{top}/README")
        entry.size, entry.mtime, entry.mode = len(readme), epoch, 0o644
        tar.addfile(entry, io.BytesIO(readme))
        for path in tree.walk(program):
            entry = _entry(path, f"{top}/{path.relative_to(program)}", epoch)
            if entry.isreg():
                with path.open("rb") as file:
                    tar.addfile(entry, file)
            else:
                tar.addfile(entry)


def _entry(path: Path, name: str, epoch: int) -> tarfile.TarInfo:
    """What the archive says about a file: nothing of who built it, when, or with which umask."""
    entry = tarfile.TarInfo(name)
    entry.mtime, entry.mode = epoch, tree.mode(path)
    if path.is_symlink():
        entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
    elif path.is_dir():
        entry.type = tarfile.DIRTYPE
    else:
        entry.size = path.stat().st_size
    return entry
