"""The portable archive of a stand-in program."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from kit import archive

from tests.packaging import linux_standin

pytestmark = pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")

EPOCH = 1_790_000_000


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return linux_standin.program(tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="module")
def packed(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archive.build(program, tmp_path_factory.mktemp("out"), "1.2.3", EPOCH, level=3)


def test_same_program_gives_the_same_bytes(program: Path, packed: Path, tmp_path: Path) -> None:
    other = shutil.copytree(program, tmp_path / "other", symlinks=True)
    for path in other.rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o700)
            os.utime(path, (1, 1))
    again = archive.build(other, tmp_path, "1.2.3", EPOCH, level=3)
    assert again.name == "kvasir-1.2.3-linux-x86_64.tar.zst"
    assert again.read_bytes() == packed.read_bytes()


def test_plain_tar_unpacks_one_folder_with_everything(program: Path, packed: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "--zstd", "-xf", str(packed)], cwd=tmp_path, check=True)
    [top] = tmp_path.iterdir()
    assert top.name == "kvasir-1.2.3"
    unpacked = {str(path.relative_to(top)) for path in top.rglob("*")}
    assert unpacked == {str(path.relative_to(program)) for path in program.rglob("*")} | {"README"}
    for path in program.rglob("*"):
        if path.is_file():
            assert (top / path.relative_to(program)).read_bytes() == path.read_bytes()
    assert os.access(top / "kvasir", os.X_OK)
    assert (top / "python/bin/python3").readlink() == Path("python3.11")
    assert subprocess.run([top / "kvasir"], check=False).returncode == 0


def test_released_form_unpacks_with_plain_tar_too(program: Path, tmp_path: Path) -> None:
    packed = archive.build(program, tmp_path / "out", "1.2.3", EPOCH)
    subprocess.run(["tar", "--zstd", "-xf", str(packed)], cwd=tmp_path, check=True)
    assert (tmp_path / "kvasir-1.2.3" / "kvasir").is_file()


def test_readme_says_how_to_start_and_to_remove(packed: Path, tmp_path: Path) -> None:
    command = ["tar", "--zstd", "-xOf", str(packed), "kvasir-1.2.3/README"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert text.startswith("Kvasir 1.2.3\n")
    assert "./kvasir desktop install" in text
    assert "./kvasir uninstall" in text


def test_members_say_nothing_of_the_builder(packed: Path) -> None:
    command = ["tar", "--zstd", "--full-time", "--numeric-owner", "-tvf", str(packed)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"TZ": "UTC"}).stdout
    for line in lines.splitlines():
        mode, owner, _, day, time = line.split()[:5]
        assert (owner, day, time) == ("0/0", "2026-09-21", "14:13:20"), line
        assert mode in ("drwxr-xr-x", "-rwxr-xr-x", "-rw-r--r--", "lrwxrwxrwx"), line
