"""What a program's ELF files need of the system they are installed on, as Debian's package relations."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from kit import elf, tree
from kit.sonames import GCC_OF_GLIBCXX, OPTIONAL, PACKAGES

REALMS = ("python", "tools")
"""Top folders with libraries of their own; everything else shares those of _internal."""

READ = ("xkb-data", "fontconfig-config")
"""Keyboard layouts and font settings (which bring a font), read by libraries that may lie in the package."""


class Needs(NamedTuple):
    depends: list[str]
    """Relations such as "libc6 (>= 2.34)", sorted."""
    recommends: list[str]
    """What only parts that can be missing need."""


class UnknownLibrary(ValueError):  # noqa: N818 - the name says what it is
    """Libraries that are neither in the package nor in the table; the message names them and who needs them."""


def of(program: Path) -> Needs:
    """Read every ELF file below ``program``. Raises UnknownLibrary for a library that nobody would bring."""
    needed: dict[str, list[str]] = defaultdict(list)
    versions: set[tuple[str, str]] = set()
    for realm in _realms(program):
        read = {path: elf.read(path) for path in realm if elf.is_elf(path)}
        bundled = {path.name for path in realm} | {item.soname for item in read.values()}
        for path, item in read.items():
            for soname in item.needed:
                if soname not in bundled:
                    needed[soname].append(str(path.relative_to(program)))
            versions |= {pair for pair in item.versions if pair[0] not in bundled}
    unknown = {soname: users for soname, users in needed.items() if soname not in PACKAGES | OPTIONAL}
    if unknown:
        listed = "; ".join(f"{soname} (for {users[0]})" for soname, users in sorted(unknown.items()))
        raise UnknownLibrary(f"In neither the package nor the table in kit/sonames.py: {listed}.")
    required = {_at_least(PACKAGES[soname], versions) for soname in needed if soname in PACKAGES}
    optional = {OPTIONAL[soname] for soname in needed if soname in OPTIONAL}
    return Needs(sorted({*required, *READ}), sorted(optional))


def _realms(program: Path) -> list[list[Path]]:
    """Files that find each other's libraries."""
    files = [path for path in tree.walk(program) if path.is_symlink() or path.is_file()]
    apart = [[path for path in files if path.relative_to(program).parts[0] == name] for name in REALMS]
    return [*apart, [path for path in files if path.relative_to(program).parts[0] not in REALMS]]


def _at_least(package: str, versions: set[tuple[str, str]]) -> str:
    """The relation with the version that the newest symbol asks for, where that matters."""
    if package == "libc6":
        found = [match[1] for _, name in versions if (match := re.fullmatch(r"GLIBC_(2\.[0-9]+)(\.[0-9]+)?", name))]
        return f"libc6 (>= {max(found, key=lambda text: int(text[2:]))})" if found else package
    if package == "libstdc++6":
        names = [name for _, name in versions if re.fullmatch(r"GLIBCXX_3\.4(\.[0-9]+)?", name)]
        beyond = [name for name in names if _step(name) > max(map(_step, GCC_OF_GLIBCXX))]
        if beyond:
            raise UnknownLibrary(f"Which GCC brought {beyond[0]} is not in the table in kit/sonames.py.")
        known = [GCC_OF_GLIBCXX[name] for name in names if name in GCC_OF_GLIBCXX]
        return f"libstdc++6 (>= {max(known, key=int)})" if known else package
    return package


def _step(version: str) -> int:
    return int([*version.split("."), "0"][2])
