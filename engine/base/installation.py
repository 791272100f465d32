"""The kind of this installation: a packaged program with its tools next to it, or a Python environment.

Standard library only: the command line reads it before anything else.

A packaged Kvasir is one folder::

    kvasir  kvasir-window  kvasir-engine    the programs
    _internal/                              what they share; engine/ lies there as source too, assets/ next to it
    python/                                 a CPython of the programs' own version, for GPU packs
    tools/uv                                makes GPU packs
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

WINDOWS = sys.platform == "win32"
_pack: Path | None = None
_program: Sequence[str] = ()
"""Command of the packaged program that started this pack's process."""


def version() -> str:
    """The installed version of Kvasir."""
    from importlib import metadata  # slow to import

    try:
        return metadata.version("kvasir")
    except metadata.PackageNotFoundError:
        # A GPU pack's environment holds what the engine needs and not Kvasir: whoever starts an engine there tells.
        return os.environ.get("KVASIR_VERSION") or "0+unknown"


def packaged() -> bool:
    """Return True if this process is one of the packaged programs."""
    return bool(getattr(sys, "frozen", False))


def program_folder() -> Path | None:
    """The folder of the packaged programs, None in a Python environment."""
    return Path(sys.executable).resolve().parent if packaged() else None


def program(name: str) -> Path:
    """The packaged program ``name``, such as "kvasir-engine". Raises RuntimeError in a Python environment."""
    folder = program_folder()
    if folder is None:
        raise RuntimeError("there are no packaged programs in a Python environment")
    return folder / (name + ".exe" if WINDOWS else name)


def engine_command() -> list[str]:
    """Command that starts the command line of this installation in another process; arguments follow."""
    if _pack is not None:
        return pack_command(_pack)
    return [str(program("kvasir-engine"))] if packaged() else own_module("engine.doors.cli.main")


def program_command() -> list[str]:
    """Command that starts the program's own command line, from a GPU pack's process too; arguments follow."""
    if _pack is None:
        return engine_command()
    return list(_program) or own_module("engine.doors.cli.main")


def own_module(module: str) -> list[str]:
    """``python -m`` of this interpreter, which would otherwise import from the folder that the user stands in whatever
    is called like a module of the standard library. A checkout that is not installed is imported from there."""
    try:
        inside = Path.cwd() == sources()
    except FileNotFoundError:  # the folder was deleted
        inside = False
    return [sys.executable, *([] if inside else ["-P"]), "-m", module]


def pack() -> Path | None:
    """The folder of the GPU pack that this process runs in, None outside of one."""
    return _pack


def enter_pack(folder: Path, program: Sequence[str] = ()) -> None:
    """Note that this process is one of the GPU pack's in ``folder``, started by the packaged ``program`` if by one;
    engine/services/packs/launch.py calls it."""
    global _pack, _program
    _pack, _program = folder, program


def pack_command(folder: Path) -> list[str]:
    """Command that starts the command line in the GPU pack in ``folder``; arguments follow, or ``--self-test``.

    Neither the user's PYTHON* variables nor packages next to the interpreter take part.
    """
    return [str(python()), "-I", "-S", str(sources() / "engine" / "services" / "packs" / "launch.py"), str(folder)]


def python() -> Path:
    """The interpreter that a GPU pack's environment is made with and that its engine runs in."""
    folder = program_folder()
    if folder is None:
        return Path(sys.executable)
    return folder / "python" / ("python.exe" if WINDOWS else f"bin/python3.{sys.version_info.minor}")


def uv() -> Path | None:
    """The uv that comes with the packaged program; None in a Python environment, where one on the PATH serves."""
    folder = program_folder()
    return None if folder is None else folder / "tools" / ("uv.exe" if WINDOWS else "uv")


def sources() -> Path:
    """The folder that holds engine/ and assets/."""
    return Path(__file__).resolve().parents[2]


def without_own_libraries(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables for programs that are not of this folder: its libraries are not theirs.

    The loader of a packaged program puts its folder before the user's LD_LIBRARY_PATH and keeps that in another
    variable. Where one of the programs has started another, that is no longer the user's: it names the folder too.
    """
    others, folder = dict(variables), program_folder()
    for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LIBPATH"):
        value = others.pop(name, None)
        value = others.pop(f"{name}_ORIG", value)
        places = value.split(os.pathsep) if value else []
        if folder is not None:
            places = [place for place in places if not Path(os.path.realpath(place)).is_relative_to(folder)]
        if places:
            others[name] = os.pathsep.join(places)
    return others
