"""A GPU pack for a trial: what the engine needs with PyTorch for the processor, and the list that names it."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import zipfile
from pathlib import Path
from urllib.parse import quote

KIND = "cuda13"
_WHEEL = re.compile(r"^\S+ @ \S+/([^/\s]+)\.whl ", re.MULTILINE)
_OF_GPUS = re.compile(r"(nvidia_(?!ml_)|cuda_|triton|ziglang)")
_PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux_2_12", "manylinux2010", "manylinux1")


def requirements(text: str) -> list[str]:
    """``name==version`` of what a pack's list names, without what drives GPUs, and torch in its build for none."""
    found = []
    for stem in _WHEEL.findall(text):
        name, version = stem.split("-")[:2]
        if not _OF_GPUS.match(name):
            found.append(f"{name}=={version}" + ("+cpu" if name == "torch" else ""))
    return found


def fetch(names: list[str], folder: Path, pip: Path, python: str) -> list[Path]:
    """The wheels of ``names`` for ``python`` ("3.11") in ``folder``, by the pip of the interpreter ``pip`` and its
    settings; ``KVASIR_TORCH_INDEX`` names PyTorch's index, as for `make package`. Raises RuntimeError."""
    note, wanted = folder / "requirements.txt", "\n".join(names) + "\n"
    if not note.is_file() or note.read_text() != wanted:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.whl"):
            old.unlink()
        draft = folder / "wanted.txt"
        draft.write_text(wanted)
        command = [str(pip), "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--dest", str(folder), "--python-version", python, "--requirement", str(draft)]
        for platform in _PLATFORMS:
            command += ["--platform", f"{platform}_x86_64"]
        index = os.environ.get("KVASIR_TORCH_INDEX")
        done = subprocess.run([*command, *(["--extra-index-url", index] if index else [])], capture_output=True)
        if done.returncode:
            raise RuntimeError(f"the wheels of the trial's pack cannot be had: {done.stderr.decode()[-2000:]}")
        draft.replace(note)
    return sorted(folder.glob("*.whl"))


def write_list(folder: Path, wheels: list[Path], address: str, python: str, installed: int | None = None) -> Path:
    """The list of a pack that computes on the processor. ``installed``: what it is to say that the pack takes."""
    unpacked = sum(_unpacked(wheel) for wheel in wheels) if installed is None else installed
    lines = [f"# kind: {KIND}", "# device: cpu", f"# python: {python}", f"# installed: {unpacked} bytes"]
    for wheel in wheels:
        name, sha256 = wheel.name.split("-")[0], hashlib.sha256(wheel.read_bytes()).hexdigest()
        where = f"{address}/wheels/{quote(wheel.name)}"
        lines.append(f"{name} @ {where} --hash=sha256:{sha256}  # {wheel.stat().st_size} bytes")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{KIND}.txt"
    file.write_text("\n".join(lines) + "\n")
    return file


def _unpacked(wheel: Path) -> int:
    with zipfile.ZipFile(wheel) as archive:
        return sum(entry.file_size for entry in archive.infolist())
