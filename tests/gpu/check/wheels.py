"""Wheels to bring along to a machine that has torch with CUDA, and from which nothing can be fetched.

``python -m tests.gpu.check wheels [NAME ...]`` fills :data:`FOLDER`, which git ignores; there each part finds them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PINS = Path(__file__).parents[1] / "requirements.txt"
FOLDER = Path("build/gpu-wheels")
GLIBC = (17, 24, 27, 28, 31, 34)
"""Minor versions of glibc that a wheel may ask for; the machine has a newer one than all of these."""
FETCHED = ("msgspec", "platformdirs")
"""What an image with PyTorch and the usual tools around it was found to lack."""


def pins() -> dict[str, str]:
    """Versions by name."""
    lines = (line.strip() for line in PINS.read_text().splitlines())
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def fetch(names: Sequence[str], folder: Path, python: str = "3.12") -> list[str]:
    """Download the wheels of these names, as pinned, for x86-64 Linux. Raises CalledProcessError, KeyError."""
    wanted = [f"{name}=={pins()[name]}" for name in names]
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in GLIBC] + ["--platform=manylinux2014_x86_64"]
    target = [f"--python-version={python}", "--implementation=cp", "--only-binary=:all:", "--no-deps", *platforms]
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "-d", str(folder), *target, *wanted], check=True)
    return sorted(path.name for path in folder.glob("*.whl"))


def missing(folder: Path) -> Iterator[Path]:
    """Wheels of packages that this Python lacks."""
    for wheel in sorted(folder.glob("*.whl")):
        try:
            version(wheel.name.split("-")[0])
        except PackageNotFoundError:
            yield wheel


def bring(folder: Path) -> None:
    """Make what is missing importable, here and in processes that are started from here. A wheel is an archive of what
    lies on the path."""
    wheels = list(missing(folder))
    if not wheels:
        return
    site = tempfile.mkdtemp(prefix="kvasir-site-")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    sys.path.append(site)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), site]))
    print(f"brought along: {', '.join(wheel.name for wheel in wheels)}", flush=True)
