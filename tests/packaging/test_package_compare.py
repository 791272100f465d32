"""What `build.py --compare` says of two program folders."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kit.compare import differences


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    folder = tmp_path / "ours"
    (folder / "_internal").mkdir(parents=True)
    (folder / "kvasir").write_bytes(b"program")
    (folder / "kvasir").chmod(0o755)
    (folder / "_internal" / "a.pyc").write_bytes(b"0123456789")
    (folder / "_internal" / "link").symlink_to("a.pyc")
    return folder


@pytest.fixture
def theirs(ours: Path, tmp_path: Path) -> Path:
    return shutil.copytree(ours, tmp_path / "theirs", symlinks=True)


def test_the_same_content_at_another_time_is_the_same(ours: Path, theirs: Path) -> None:
    (theirs / "kvasir").touch()
    (theirs / "kvasir").chmod(0o700)  # a package gives both the same mode
    assert differences(ours, theirs) == []


def test_each_kind_of_difference_has_a_line(ours: Path, theirs: Path) -> None:
    (ours / "new").write_bytes(b"")
    (theirs / "_internal" / "old").mkdir()
    (theirs / "kvasir").chmod(0o644)
    (theirs / "_internal" / "a.pyc").write_bytes(b"01234x6789more")
    (theirs / "_internal" / "link").unlink()
    (theirs / "_internal" / "link").symlink_to("old")
    assert differences(ours, theirs) == [
        "_internal/a.pyc: 10 bytes here, 14 there",
        "_internal/a.pyc: 1 bytes differ, the first at 5: b'0123456789' here, b'01234x6789more' there",
        "_internal/link: leads to a.pyc here, to old there",
        "_internal/old: only there",
        "kvasir: mode 755 here, 644 there",
        "new: only here",
    ]


def test_a_link_in_place_of_a_file_is_told(ours: Path, theirs: Path) -> None:
    (theirs / "kvasir").unlink()
    (theirs / "kvasir").symlink_to("_internal/a.pyc")
    assert differences(ours, theirs) == ["kvasir: a file here, a link there"]


def test_a_folder_that_is_not_there_is_no_comparison(ours: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        differences(ours, tmp_path / "nothing")
