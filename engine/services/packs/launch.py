"""Run the engine in a GPU pack: ``python -I -S launch.py PACK ARGS…``. Standard library only.

What is imported comes from Python itself and from the pack; of the folder that holds ``engine`` only that package. In
a packaged program torch's CPU build and other libraries lie next to it, made for the program and not for this one.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import site
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

SELF_TEST = "--self-test"
BACK = "KVASIR_GPU_PACK_BACK"
"""How the program that has started this is started, as a JSON list; where it is not set there is no way back."""
FAILED = "KVASIR_GPU_PACK_FAILED"
"""Why this pack could not be used, for the program that goes on instead."""
WITH_TORCH = frozenset({"serve", "chat", "doctor", "bench", "lab", "compare", "train-heads", "quantise"})
"""Commands that import torch in any case."""


class OnlyEngine:
    """Finds the package ``engine`` in a folder, and nothing else of it."""

    def __init__(self, sources: Path) -> None:
        self._sources = [str(sources)]

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, self._sources) if name == "engine" else None


def site_packages(pack: Path) -> Path:
    """Folder of the pack's libraries for this version of Python."""
    if sys.platform == "win32":
        return pack / "Lib" / "site-packages"
    return pack / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def enter(pack: Path, sources: Path) -> None:
    """Make this process one of the pack's."""
    # Without -S these would be the interpreter's own packages, before the pack's.
    others = {os.path.realpath(entry) for entry in [*site.getsitepackages(), site.getusersitepackages()]}
    sys.path[:] = [entry for entry in sys.path if entry and os.path.realpath(entry) not in others]
    site.addsitedir(str(site_packages(pack)))
    sys.meta_path.insert(0, OnlyEngine(sources))
    from engine.base import installation

    installation.enter_pack(pack, json.loads(os.environ.get(BACK, "[]")))


def go_back_without_torch(args: list[str]) -> None:
    """Return once torch is imported; where it cannot be, let the program compute by itself and say why."""
    try:
        importlib.import_module("torch")
    except Exception as error:  # whatever a damaged library raises
        back = json.loads(os.environ.get(BACK, "[]"))
        if not back or os.name != "posix":
            raise
        words = (str(error).strip() or type(error).__name__).splitlines()[0][:300].rstrip(".")
        os.environ[FAILED] = (
            f"The GPU pack is not used: a library of it cannot be loaded ({words}). "
            "`kvasir gpu repair` downloads it again."
        )
        os.execve(back[0], [*back, *args], os.environ)


def run(pack: Path, args: list[str]) -> None:
    """Raises SystemExit with the engine's exit code."""
    enter(pack, Path(__file__).resolve().parents[3])
    if args[:1] == [SELF_TEST]:
        from engine.services.packs.selftest import run_self_test

        sys.exit(run_self_test(pack))
    if args[:1] == ["serve"] and "--child" in args:
        from engine.services.packs import marker

        marker.forgive_termination(pack.parent)
    from engine.loading.memory.environment import bound_spinning

    bound_spinning()
    if args and args[0] in WITH_TORCH:
        go_back_without_torch(args)
    sys.argv = ["kvasir", *args]
    runpy.run_module("engine.doors.cli.main", run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("kvasir: launch.py is given the folder of a GPU pack, then what `kvasir` is given.")
    run(Path(sys.argv[1]), sys.argv[2:])
