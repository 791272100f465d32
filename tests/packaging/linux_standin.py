"""A program's folder as freezing leaves it, small: real binaries of wheels that the tests' own environment has."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

TRUE = Path("/usr/bin/true")


def site(package: str) -> Path:
    """The folder that an installed package lies in."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent.parent


def program(folder: Path) -> Path:
    """A program that brings something of CPython, NumPy, PyTorch and Shiboken, and has been given its share/."""
    from kit import share

    small = [
        *site("shiboken6").glob("shiboken6/libshiboken6*"),
        *site("numpy").glob("numpy.libs/libquadmath*"),
        *site("torch").glob("torch/lib/libgomp*"),
    ]
    assert len(small) == 3
    for name in ("kvasir", "kvasir-window", "kvasir-engine", "tools/uv", "python/bin/python3.11"):
        _copy(TRUE, folder / name)
    for path in small:
        _copy(path, folder / "_internal" / path.relative_to(path.parents[2 if "torch" in path.parts else 1]))
    (folder / "python" / "bin" / "python3").symlink_to("python3.11")
    source = folder / "_internal" / "engine" / "base" / "installation.py"
    source.parent.mkdir(parents=True)
    source.write_text("# a source\n", encoding="utf-8")
    (folder / "tools" / "LICENSE-MIT").write_text("uv's licence\n", encoding="utf-8")
    share.write(folder)
    return folder


def window(folder: Path) -> Path:
    """The same with what an X11 window needs of Qt, for what is computed and not packed."""
    program(folder)
    qt = site("PySide6") / "PySide6" / "Qt"
    names = ("Core", "Gui", "DBus", "XcbQpa")
    for path in [*(qt / "lib" / f"libQt6{name}.so.6" for name in names), *(qt / "lib").glob("libicu*")]:
        _copy(path, folder / "_internal" / "PySide6" / "Qt" / "lib" / path.name)
    for plugin in ("platforms/libqxcb.so", "platformthemes/libqgtk3.so"):
        _copy(qt / "plugins" / plugin, folder / "_internal" / "PySide6" / "Qt" / "plugins" / plugin)
    return folder


def licensed(folder: Path) -> Path:
    """With the index of licences that the Debian package reads."""
    from kit import licences

    licences.collect(folder, Path(sys.executable))
    return folder


def _copy(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, place)
