"""Verification of an installed pack: each wheel's RECORD, and by it every file."""

from __future__ import annotations

import base64
import csv
import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from engine.protocol.gpu import PackProgress
from engine.services.packs import store
from engine.services.packs.launch import site_packages
from engine.services.packs.lists import PackFailed, PackList, Wheel

_LIBRARY = re.compile(r"\.(so|dylib|dll|pyd)(\.\d+)*$")


def records(folder: Path, pack: PackList) -> dict[str, str]:
    """sha256 of each wheel's RECORD, by the wheel's file name. Raises :class:`PackFailed` if one is not installed."""
    installed = record_files(folder, pack)
    missing = [wheel.filename for wheel in pack.wheels if wheel.filename not in installed]
    if missing:
        raise PackFailed(f"{', '.join(missing)} was not installed, and uv did not say why. Start again.")
    return {name: hashlib.sha256(record.read_bytes()).hexdigest() for name, record in installed.items()}


def libraries(folder: Path) -> dict[str, int]:
    """The size of each shared library, by its path in the pack: what every start looks for."""
    found = (path for path in site_packages(folder).rglob("*") if _LIBRARY.search(path.name) and path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in sorted(found)}


def damaged(
    folder: Path, pack: PackList, receipt: store.PackReceipt, report: Callable[[PackProgress], None]
) -> list[Wheel]:
    """The wheels of which a file is missing or differs."""
    installed = record_files(folder, pack)
    found = []
    for done, wheel in enumerate(pack.wheels):
        report(PackProgress("checking", done, len(pack.wheels), "Looking at every file."))
        record = installed.get(wheel.filename)
        if record is None or not _whole(record, receipt.records.get(wheel.filename, "")):
            found.append(wheel)
    return found


def record_files(folder: Path, pack: PackList) -> dict[str, Path]:
    """The RECORD of each wheel that is installed, by the wheel's file name."""
    modules = site_packages(folder)
    by_name = {_normal(path.parent.name.split("-")[0]): path for path in modules.glob("*.dist-info/RECORD")}
    return {wheel.filename: by_name[_normal(wheel.name)] for wheel in pack.wheels if _normal(wheel.name) in by_name}


def _whole(record: Path, sha256: str) -> bool:
    """Return True if RECORD is the one that was installed and every file is as it says."""
    try:
        text = record.read_bytes()
        if hashlib.sha256(text).hexdigest() != sha256:
            return False
        for name, wanted, *_ in csv.reader(text.decode("utf-8").splitlines()):
            kind, _, value = wanted.partition("=")
            # RECORD itself has no hash; what has another kind than sha256 is not made any more.
            if kind == "sha256":
                with (record.parent.parent / name).open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").digest()
                if base64.urlsafe_b64encode(digest).decode().rstrip("=") != value:
                    return False
    except (OSError, ValueError):
        return False
    return True


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
