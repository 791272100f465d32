"""What a finished program folder must hold to: no trace of where it was built, no newer C library than promised."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from kit import bundle, elf, tree
from kit.freeze import run
from kit.layout import PROGRAM, ROOT

GLIBC = (2, 35)
"""The oldest GNU C library that the programs run with (Ubuntu 22.04)."""
INSTALLED_LIMIT, COMPRESSED_LIMIT = 1_100_000_000, 400_000_000
"""Targets in bytes."""

LITTER = re.compile(r"/\.[^/]+$|\.(pyi|pyo|orig|rej|whl|o|a|pdb)$|\.dist-info/(?!METADATA$)|/conftest\.pyc?$")
"""By names, from "/" on. A RECORD also says where pip put things when the program was built."""


def build_paths() -> list[bytes]:
    """Folders of this machine that could be written into a file while it is built."""
    folders = {ROOT, Path(sys.base_prefix), Path.home() / ".cache"}
    # The longest first: one may lie inside another.
    return sorted((str(folder).encode() for folder in folders if folder != Path("/")), key=len, reverse=True)


def scrub(folder: Path = PROGRAM) -> list[Path]:
    """Overwrite the build machine's folders in every file by names of the same length; the files that had some.

    A compiled-in default such as the interpreter's prefix is never used: each program finds its own place at run time.
    The same length keeps every offset of a binary file right.
    """
    changed = []
    for file in tree.files(folder):
        data = file.read_bytes()
        new = data
        for path in build_paths():
            new = new.replace(path, _stand_in(path))
        if new != data:
            file.write_bytes(new)
            changed.append(file)
    return changed


def sign_again(changed: list[Path]) -> list[Path]:
    """Sign ad hoc the code for macOS among the files; those that were.

    PyInstaller has signed all of it, and Apple's processors run nothing whose signature no longer fits.
    """
    code = [file for file in changed if bundle.is_macho(file)]
    for file in code:
        run("codesign", "--force", "--sign", "-", str(file))
    return code


def _stand_in(path: bytes) -> bytes:
    # The last name stays: a linker lets a string such as the version share the end of a longer one, as "/x/y/3.11.7".
    head, slash, name = path.rpartition(b"/")
    return (b"/built" + b"-" * len(head))[: len(head)] + slash + name


def traces(folder: Path = PROGRAM, paths: list[bytes] | None = None) -> list[tuple[Path, bytes]]:
    """Files that hold a folder of the build machine, with that folder; links that lead out of the program."""
    links = [path for path in tree.walk(folder) if path.is_symlink()]
    found = [(link, b"a link that leads out") for link in links if not _inside(link, folder)]
    for file in tree.files(folder):
        data = file.read_bytes()
        found += [(file, path) for path in paths or build_paths() if path in data]
    return found


def litter(folder: Path = PROGRAM) -> list[Path]:
    """Files that no installed program reads: of version control, of editors and type checkers, of pip's own books."""
    return [file for file in tree.files(folder) if LITTER.search("/" + file.relative_to(folder).as_posix())]


def native_code(folder: Path = PROGRAM) -> list[Path]:
    """The libraries of Kvasir's native code that the program brings, one for each set of instructions."""
    return [file for file in tree.files(folder) if file.match("engine/compute/native/kvasir_native_*")]


def newer_glibc(folder: Path = PROGRAM) -> list[tuple[Path, str]]:
    """Files that want a newer C library than :data:`GLIBC`, with the version they want."""
    found = []
    for file in filter(elf.is_elf, tree.files(folder)):
        names = (re.match(r"GLIBC_(\d+)\.(\d+)", name) for _, name in elf.read(file).versions)
        wanted = max(((int(name[1]), int(name[2])) for name in names if name), default=(0, 0))
        if wanted > GLIBC:
            found.append((file, ".".join(map(str, wanted))))
    return found


def sizes(folder: Path = PROGRAM) -> list[tuple[str, int]]:
    """What makes up the program, in bytes, the largest first: packages of _internal/, and the other folders."""
    parts: dict[str, int] = {}
    for file in tree.files(folder):
        names = file.relative_to(folder).parts
        part = names[1] if names[0] == "_internal" else names[0]
        parts[part] = parts.get(part, 0) + file.stat().st_size
    return sorted(parts.items(), key=lambda item: -item[1])


def _inside(link: Path, folder: Path) -> bool:
    return link.resolve().is_relative_to(folder.resolve()) and link.exists()
