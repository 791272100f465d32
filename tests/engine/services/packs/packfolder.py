"""A GPU pack as the manager makes one, whose libraries are those of the running interpreter."""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

from engine.services.packs import start
from engine.services.packs.launch import site_packages

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
LOCK = "0123abcd"


def make_pack(packs: Path, *, libraries: bool = True, python: str = PYTHON, tested: str | None = None) -> Path:
    """The pack's folder; ``active.json`` names it, tested on this machine if nothing else is said."""
    pack = packs / LOCK
    packages = site_packages(pack)
    packages.mkdir(parents=True)
    if libraries:
        (packages / "real.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    note = {"kind": "cuda13", "device": "cpu", "lock": LOCK, "python": python}
    (pack / "pack.json").write_text(json.dumps(note), "utf-8")
    tested = start.fingerprint() if tested is None else tested
    start.write_active(packs, {"folder": LOCK, "kind": "cuda13", "tested": tested})
    return pack
