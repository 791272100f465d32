"""Kvasir's kernels for all generations of GPUs, by each Triton of the GPU packs: ``python -m kit.gpu_kernels PLACE``.

``make kernels`` runs it, and so does the build of a package, which takes them along in engine/compute/native/kernels.
No GPU is needed. What has not changed since it was compiled is kept.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from engine.services.packs.lists import PackFailed, Wheel
from kit import triton_wheels
from kit.layout import PROGRAM, ROOT, internal

PLACE, TRITONS = ROOT / "build" / "kernels", ROOT / "build" / "tritons"
LISTS = ROOT / "engine" / "services" / "packs" / "lists"
LIMIT = 150_000_000
"""Bytes that all kernels of a package may take: 63 MB were measured for one Triton, of which there may be two."""


def compile_with(wheel: Wheel, place: Path, tritons: Path, *arguments: str) -> None:
    """Compile into ``place`` with a Triton that is unpacked in ``tritons``. Raises SystemExit where that fails."""
    path = [triton_wheels.folder_of(wheel, tritons), ROOT / "packaging", ROOT]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "kit.kernels", str(place), *arguments]
    if status := subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode:
        raise SystemExit(f"The kernels of Triton {wheel.version} could not be compiled (exit status {status}).")


def make(place: Path = PLACE, *arguments: str, tritons: Path = TRITONS) -> int:
    """Compile with each Triton of the packs' lists; the bytes that all take. Raises OSError, PackFailed, SystemExit."""
    wheels = [wheel for wheel in triton_wheels.listed(LISTS) if wheel.name == "triton"]
    for wheel in wheels:
        triton_wheels.fetch(wheel, tritons)
        compile_with(wheel, place, tritons, *arguments)
    for folder in place.iterdir():
        if folder.name not in {wheel.version for wheel in wheels}:
            shutil.rmtree(folder)
    return within_limit(place)


def within_limit(place: Path) -> int:
    """The bytes of a folder of kernels. Raises SystemExit where they are more than :data:`LIMIT`."""
    files = [file for file in place.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    kernels = sum(file.suffix == ".cubin" for file in files)
    print(f"  {kernels} kernels take {size / 1e6:.1f} MB (target {LIMIT / 1e6:.0f})")
    if size > LIMIT:
        raise SystemExit(
            f"The compiled kernels take more than {LIMIT / 1e6:.0f} MB: leave out models in tests/gpu/loads.py."
        )
    return size


def add(program: Path = PROGRAM) -> None:
    """Put the kernels where the program's engine looks for them."""
    make()
    target = internal(program) / "engine" / "compute" / "native" / "kernels"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(PLACE, target)


def main() -> None:
    words = argparse.ArgumentParser(description="Compile the kernels that go with a package.")
    words.add_argument("place", type=Path)
    words.add_argument("--tritons", type=Path, default=TRITONS, help="where the packs' Tritons are unpacked")
    chosen, more = words.parse_known_args()
    try:
        make(chosen.place, *more, tritons=chosen.tritons)
    except (OSError, PackFailed) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
