"""Where tests write when the disk for temporary files is full."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit import room


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Bytes that are free in the usual folder and elsewhere."""
    bytes_free = {tempfile.gettempdir(): room.NEEDED, str(tmp_path / "build"): room.NEEDED}
    monkeypatch.setattr(room, "ELSEWHERE", tmp_path / "build")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(0, 0, bytes_free[str(folder)]))
    return bytes_free


def test_there_is_room(free: dict[str, int]) -> None:
    assert room.place() == (tempfile.gettempdir(), "")


def test_a_full_one_is_left_and_said(free: dict[str, int], tmp_path: Path) -> None:
    free[tempfile.gettempdir()] = 10**8
    folder, said = room.place()
    assert folder == str(tmp_path / "build")
    assert Path(folder).is_dir()
    assert said.startswith(f"{tempfile.gettempdir()} has 0.1 GB free, of the 2 that a whole run needs: ")


def test_without_room_anywhere_nothing_runs(free: dict[str, int]) -> None:
    free.update(dict.fromkeys(free, 10**8))
    with pytest.raises(OSError, match="Set TMPDIR"):
        room.place()
