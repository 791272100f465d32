"""Kvasir.app out of a program folder, and the order in which its parts are signed.

A bundle's parts have their places, or codesign refuses it: programs in Contents/MacOS, code in Contents/Frameworks,
everything else in Contents/Resources. PyInstaller's programs look for ``_internal`` in Contents/Frameworks when they
lie in Contents/MacOS, and a library looks for its data beside itself: so each of the two trees has links to what lies
in the other. A folder's name in Contents/Frameworks may have no dot, unless it is a framework's; such a folder gets
another name, and a link has the old one.

This runs on any system; what needs macOS is in macos/*.sh.
"""

from __future__ import annotations

import os
import plistlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from kit.layout import PROGRAMS

DOT = "__dot__"
LEFT_OUT = ("python", "tools", "share")
"""GPU packs exist for no Mac, so neither do the interpreter and the uv that make them; share/ is for Linux' menus."""
_MAGIC = {bytes.fromhex(magic) for magic in ("feedface", "feedfacf", "cefaedfe", "cffaedfe")}
_FAT = bytes.fromhex("cafebabe")
_MOST_ARCHITECTURES = 30
"""Java's class files begin like Mach-O files of several architectures; their next number is a version above this."""


class BundleError(Exception):
    """The folder is none that a bundle can be made of; the text says why."""


def make(program: Path, app: Path, plist: dict[str, object], icon: bytes) -> None:
    """Write the bundle ``app``, which must not be there. Raises :class:`BundleError`, FileExistsError."""
    missing = [name for name in PROGRAMS if not (program / name).is_file()]
    if missing or not (program / "_internal").is_dir():
        raise BundleError(f"{program} lacks {', '.join(missing or ['_internal'])}: it is no program folder for macOS.")
    contents = app / "Contents"
    for name in ("MacOS", "Frameworks", "Resources"):
        (contents / name).mkdir(parents=True)
    for entry in sorted(program.iterdir()):
        if entry.name in PROGRAMS:
            shutil.copy2(entry, contents / "MacOS" / entry.name)
            (contents / "MacOS" / entry.name).chmod(0o755)
        elif entry.name == "_internal":
            _spread(entry, contents / "Frameworks", contents / "Resources")
        elif entry.name not in LEFT_OUT:
            raise BundleError(f"{entry} has no place in a bundle; name it in bundle.py.")
    (contents / "Resources" / "kvasir.icns").write_bytes(icon)
    (contents / "PkgInfo").write_bytes(b"APPL????")
    (contents / "Info.plist").write_bytes(plistlib.dumps(plist))


def _spread(source: Path, frameworks: Path, resources: Path) -> None:
    """One folder's entries into both trees; the folders themselves are there."""
    for entry in sorted(source.iterdir()):
        code, data = frameworks / entry.name, resources / entry.name
        if entry.is_symlink():
            # What it names is in both trees, so that it holds in both.
            for link in (code, data):
                link.symlink_to(os.readlink(entry))
        elif entry.is_dir():
            _spread_folder(entry, code, data)
        elif is_macho(entry):
            shutil.copy2(entry, code)
            code.chmod(0o755)
            _link(data, code)
        else:
            shutil.copy2(entry, data)
            _link(code, data)


def _spread_folder(source: Path, code: Path, data: Path) -> None:
    if source.suffix == ".framework":
        shutil.copytree(source, code, symlinks=True)
        _link(data, code)
        return
    kinds = set(_kinds(source))
    if kinds <= {"data"}:
        shutil.copytree(source, data, symlinks=True)
        _link(code, data)
        return
    real = code.with_name(code.name.replace(".", DOT))
    real.mkdir()
    if real != code:
        code.symlink_to(real.name)
    data.mkdir()
    _spread(source, real, data)


def _kinds(folder: Path) -> Iterator[str]:
    """What lies below a folder: code, data."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield "code" if is_macho(path) else "data"


def _link(link: Path, target: Path) -> None:
    link.symlink_to(os.path.relpath(target, link.parent))


def is_macho(path: Path) -> bool:
    """Whether a file is code of macOS, for one architecture or for several."""
    with path.open("rb") as file:
        head = file.read(8)
    if head[:4] == _FAT:
        return 0 < int.from_bytes(head[4:], "big") <= _MOST_ARCHITECTURES
    return head[:4] in _MAGIC


def signing_order(app: Path) -> list[tuple[Path, bool]]:
    """What codesign is called for, one after the other, and whether it is a program, which alone has entitlements.

    From the inside out, because each signature covers those within: single files, the deepest first; then frameworks;
    then the programs; at last the bundle, and with it the program that its Info.plist names.
    """
    plist = plistlib.loads((app / "Contents" / "Info.plist").read_bytes())
    main = app / "Contents" / "MacOS" / str(plist["CFBundleExecutable"])
    folders = [path for path in app.rglob("*.framework") if path.is_dir() and not path.is_symlink()]
    versions = [version for folder in folders for version in _versions(folder)]
    mains = {_framework_code(version) for version in versions}
    code = [path for path in app.rglob("*") if path.is_file() and not path.is_symlink() and is_macho(path)]
    programs = [path for path in code if path.parent == main.parent and path != main]
    files = [path for path in code if path.parent != main.parent and path not in mains]
    return [
        *((path, False) for path in sorted(files, key=_depth)),
        *((path, False) for path in sorted(versions, key=_depth)),
        *((path, True) for path in sorted(programs)),
        (app, True),
    ]


def _versions(framework: Path) -> list[Path]:
    """What of a framework is signed: each of its versions, or the whole of one that has none."""
    folder = framework / "Versions"
    found = [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()] if folder.is_dir() else []
    return found or [framework]


def _framework_code(version: Path) -> Path:
    """The library that a framework is named after; its signature is the framework's."""
    framework = next(path for path in (version, *version.parents) if path.suffix == ".framework")
    return version / framework.stem


def _depth(path: Path) -> tuple[int, Path]:
    return -len(path.parts), path


def problems(app: Path) -> list[str]:
    """What codesign or a Mac would refuse, a sentence each."""
    found = []
    for path in sorted(app.rglob("*")):
        place = path.relative_to(app)
        if path.is_symlink():
            if os.path.isabs(os.readlink(path)) or not path.resolve().is_relative_to(app.resolve()):
                found.append(f"{place} is a link that leads out of the bundle.")
            elif not path.exists():
                found.append(f"{place} is a link to nothing.")
        elif path.is_dir():
            if _among_code(place) and "." in path.name:
                found.append(f"{place} is a folder with a dot in its name among the code.")
        elif _among_code(place) and not is_macho(path):
            found.append(f"{place} is no code, and lies among the code.")
    return found


def _among_code(place: Path) -> bool:
    """Whether a path of the bundle is where only code may lie; what is in a framework is the framework's affair."""
    inside = place.parts[:2] in (("Contents", "MacOS"), ("Contents", "Frameworks"))
    return inside and not any(part.endswith(".framework") for part in place.parts)
