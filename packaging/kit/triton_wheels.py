"""The Tritons that GPU packs bring: which, and files of theirs, fetched with the hashes of the packs' lists.

    python -m kit.triton_wheels PLACE

unpacks every one of them whole, to try the kernels with (``make test-tritons``): PLACE/VERSION-HASH is a folder for
PYTHONPATH. Nothing is fetched twice.
"""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from engine.packs.lists import PackFailed, parse

EVERYTHING = re.compile(r".*", re.DOTALL)


class Triton(NamedTuple):
    """A wheel of Triton in a list. ``python``: the version that the list is for."""

    version: str
    python: str
    sha256: str


class FetchError(OSError):
    """The message is a sentence."""


def listed(lists: Path) -> list[Triton]:
    """What the lists for this platform and NVIDIA's GPUs name, each once.

    Raises PackFailed for a list that cannot be understood or names none.
    """
    here = f"{sys.platform} {platform.machine().lower()}"
    found = set()
    for file in sorted(lists.glob("*.txt")):
        pack = parse(file.read_text("utf-8"), str(file))
        if pack.kind == "rocm" or pack.header.get("platform", here) != here:
            continue
        tritons = [wheel for wheel in pack.wheels if wheel.name == "triton"]
        if not tritons:
            raise PackFailed(f"{file} names no Triton.")
        found |= {Triton(wheel.version, pack.python, wheel.sha256) for wheel in tritons}
    return sorted(found)


def folder_of(wheel: Triton, place: Path) -> Path:
    """Where :func:`fetch` puts it."""
    return place / f"{wheel.version}-{wheel.sha256[:16]}"


def fetch(wheel: Triton, place: Path, wanted: re.Pattern[str] = EVERYTHING) -> Path:
    """The folder with the ``wanted`` files of the wheel, by their whole names in it; it is not fetched if it is there.

    By pip, from whatever index that is set to ask; what has another hash is refused. Raises :class:`FetchError`.
    """
    folder = folder_of(wheel, place)
    if folder.is_dir():
        return folder
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as work:
        requirement = Path(work) / "requirement.txt"
        requirement.write_text(f"triton=={wheel.version} --hash=sha256:{wheel.sha256}\n")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        pip += ["--only-binary", ":all:", "--python-version", wheel.python, "--require-hashes"]
        done = subprocess.run([*pip, "--dest", work, "--requirement", str(requirement)], check=False)
        if done.returncode:
            raise FetchError(f"pip could not fetch Triton {wheel.version} with the hash that GPU packs are to have.")
        (file,) = Path(work).glob("triton-*.whl")
        unpacked = Path(work) / "unpacked"
        with zipfile.ZipFile(file) as archive:
            for entry in filter(lambda entry: wanted.fullmatch(entry.filename), archive.infolist()):
                target = Path(archive.extract(entry, unpacked))
                if entry.external_attr >> 16 & 0o111 and target.is_file():
                    target.chmod(0o755)  # ptxas, which zipfile would leave without the right to run
        if not unpacked.is_dir():
            raise FetchError(f"{file.name} holds nothing of what was looked for.")
        shutil.move(unpacked, folder)  # under its name only once it is whole
    return folder


def main() -> None:
    words = argparse.ArgumentParser(description="Unpack the Tritons that GPU packs bring.")
    words.add_argument("place", type=Path)
    words.add_argument("--lists", type=Path, default=Path(__file__).parents[2] / "engine" / "packs" / "lists")
    chosen = words.parse_args()
    try:
        for wheel in listed(chosen.lists):
            print(fetch(wheel, chosen.place))
    except (OSError, PackFailed) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
