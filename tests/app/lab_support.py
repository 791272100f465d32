"""The fake `kvasir lab`, which the fixture `state` tells what to do, and what the page says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QLabel

from app.lab.page import LabView
from tests.app.fake_lab import write

FAKE = Path(__file__).with_name("fake_lab.py")


def change(path: Path, **facts: Any) -> None:
    write(path, {**json.loads(path.read_text()), **facts})


def asked(path: Path) -> list[list[str]]:
    """The runs that were asked for."""
    return [each for each in json.loads(path.read_text())["asked"] if not each[0].startswith("--")]


def said(lab: LabView, name: str) -> str:
    found = lab.findChild(QLabel, name)
    return found.text() if found is not None and found.isVisibleTo(lab) else ""
