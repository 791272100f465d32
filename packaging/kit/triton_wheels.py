"""The Tritons that GPU packs bring, and the C compiler that goes with them: ``python -m kit.triton_wheels PLACE``.

Unpacks each of them into PLACE/NAME-VERSION, a folder for PYTHONPATH, to try Kvasir's kernels with (``make
test-tritons``). pip fetches them from where the packs' lists say, with their hashes, and nothing twice.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from engine.services.packs.lists import PackFailed, Wheel, parse

NAMES = ("triton", "ziglang")


def listed(lists: Path) -> list[Wheel]:
    """What the lists for this platform, this Python and NVIDIA's GPUs name of NAMES, each once.

    Raises PackFailed for a list that cannot be understood or lacks one of them.
    """
    here = {
        "platform": f"{sys.platform} {platform.machine().lower()}",
        "python": ".".join(map(str, sys.version_info[:2])),
    }
    found: set[Wheel] = set()
    for file in sorted(lists.glob("*.txt")):
        pack = parse(file.read_text("utf-8"), str(file))
        if pack.kind == "rocm" or any(pack.header.get(name, value) != value for name, value in here.items()):
            continue
        wheels = {wheel for wheel in pack.wheels if wheel.name in NAMES}
        if absent := set(NAMES) - {wheel.name for wheel in wheels}:
            raise PackFailed(f"{file} does not name {' and '.join(sorted(absent))}.")
        found |= wheels
    return sorted(found)


def folder_of(wheel: Wheel, place: Path) -> Path:
    """Where :func:`fetch` puts it."""
    return place / f"{wheel.name}-{wheel.version}"


def fetch(wheel: Wheel, place: Path) -> Path:
    """The folder with the wheel's packages. Raises OSError where pip refuses it."""
    folder = folder_of(wheel, place)
    if folder.is_dir():
        return folder
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as work:
        requirement, unpacked = Path(work) / "requirement.txt", Path(work) / "unpacked"
        requirement.write_text(f"{wheel.name} @ {wheel.url} --hash=sha256:{wheel.sha256}\n")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        pip += ["--no-compile", "--require-hashes", "--target", str(unpacked), "--requirement", str(requirement)]
        if subprocess.run(pip, check=False).returncode:
            raise OSError(f"pip could not fetch {wheel.filename} with the hash that GPU packs are to have.")
        shutil.move(unpacked, folder)  # under its name only once it is whole
    return folder


def main() -> None:
    words = argparse.ArgumentParser(description="Unpack the Tritons that GPU packs bring.")
    words.add_argument("place", type=Path)
    words.add_argument(
        "--lists", type=Path, default=Path(__file__).parents[2] / "engine" / "services" / "packs" / "lists"
    )
    chosen = words.parse_args()
    try:
        for wheel in listed(chosen.lists):
            print(fetch(wheel, chosen.place))
    except (OSError, PackFailed) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
