"""The Debian package of a stand-in program."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from kit import deb, share

from tests.packaging import linux_standin

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")

EPOCH = 1_790_000_000
VERSION = share.releases()[0][0]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return linux_standin.licensed(linux_standin.program(tmp_path_factory.mktemp("program")))


@pytest.fixture(scope="module")
def package(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return deb.build(program, tmp_path_factory.mktemp("out"), VERSION, EPOCH, level=1)


@pytest.fixture(scope="module")
def members(package: Path) -> dict[str, tarfile.TarInfo]:
    return {member.name.removeprefix("./"): member for member in _tar(package).getmembers()}


def test_same_program_gives_the_same_bytes(
    program: Path, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    other = tmp_path / "other folder"
    files = sorted((path for path in program.rglob("*") if not path.is_dir()), reverse=True)
    old = os.umask(0o027)
    try:
        for path in files:  # made in another order, at another time, with another umask
            place = other / path.relative_to(program)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place, follow_symlinks=False)
        again = deb.build(other, tmp_path / "out", VERSION, EPOCH, level=1)
    finally:
        os.umask(old)
    assert again.name == f"kvasir_{VERSION}_amd64.deb"
    assert again.read_bytes() == package.read_bytes()
    assert [path.name for path in (tmp_path / "out").iterdir()] == [again.name]


def test_members_say_nothing_of_the_builder(members: dict[str, tarfile.TarInfo]) -> None:
    assert {(member.uid, member.gid, member.uname, member.gname) for member in members.values()} == {
        (0, 0, "root", "root")
    }
    assert {member.mtime for member in members.values()} == {EPOCH}
    for name, member in members.items():
        wanted = 0o777 if member.issym() else 0o755 if member.isdir() or name in _RUN else 0o644
        assert member.mode == wanted, name


_RUN = {
    "usr/lib/kvasir/kvasir",
    "usr/lib/kvasir/kvasir-window",
    "usr/lib/kvasir/kvasir-engine",
    "usr/lib/kvasir/tools/uv",
    "usr/lib/kvasir/python/bin/python3.11",
}


def test_program_and_what_desktops_read_are_in_their_places(members: dict[str, tarfile.TarInfo]) -> None:
    assert set(members) >= _RUN
    assert members["usr/bin/kvasir"].linkname == "../lib/kvasir/kvasir"
    assert members["usr/lib/kvasir/python/bin/python3"].linkname == "python3.11"
    for name in (
        "applications/kvasir.desktop",
        "icons/hicolor/48x48/apps/kvasir.png",
        "icons/hicolor/scalable/apps/kvasir.svg",
        "mime/packages/kvasir.xml",
        "man/man1/kvasir.1.gz",
        "doc/kvasir/copyright",
        "doc/kvasir/changelog.gz",
    ):
        assert members[f"usr/share/{name}"].isreg()
    assert not [name for name in members if name.startswith(("usr/lib/kvasir/share", "etc"))]


def test_control_fields(package: Path, members: dict[str, tarfile.TarInfo]) -> None:
    fields = _fields(package)
    assert fields["Version"] == VERSION
    assert "libgcc-s1" in fields["Depends"]
    size = sum(-(-member.size // 1024) if member.isreg() else 1 for name, member in members.items() if name != ".")
    assert int(fields["Installed-Size"]) == size


def test_sums_are_those_of_the_files(package: Path, members: dict[str, tarfile.TarInfo]) -> None:
    sums = subprocess.run(["dpkg-deb", "-I", str(package), "md5sums"], capture_output=True, text=True, check=True)
    listed = dict(reversed(line.split("  ", 1)) for line in sums.stdout.splitlines())
    assert set(listed) == {name for name, member in members.items() if member.isreg()}
    tar = _tar(package)
    for name, told in listed.items():
        file = tar.extractfile("./" + name)
        assert file is not None
        assert hashlib.md5(file.read(), usedforsecurity=False).hexdigest() == told


def test_changelog_begins_with_this_version_also_where_no_release_names_it(package: Path) -> None:
    file = _tar(package).extractfile("./usr/share/doc/kvasir/changelog.gz")
    assert file is not None
    text = gzip.decompress(file.read()).decode()
    assert text.startswith(f"kvasir ({VERSION}) unstable; urgency=medium\n")
    assert "9.9.9" in deb._changelog("9.9.9", EPOCH).splitlines()[0]
    assert "Mon, 21 Sep 2026 12:00:00 +0000" in deb._changelog("9.9.9", EPOCH)


@pytest.mark.skipif(shutil.which("lintian") is None, reason="lintian is not installed")
def test_lintian_has_nothing_to_say_that_is_not_explained(package: Path) -> None:
    command = ["lintian", "--fail-on", "none", "--allow-root", str(package)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_every_override_has_its_reason() -> None:
    paragraphs = (deb.LINUX / "lintian-overrides").read_text(encoding="utf-8").strip().split("\n\n")
    assert all(paragraph.startswith("# ") for paragraph in paragraphs)


@pytest.mark.skipif(os.geteuid() != 0, reason="dpkg installs as root only")
def test_purge_leaves_nothing(package: Path, tmp_path: Path) -> None:
    (tmp_path / "home" / "user" / ".local" / "share" / "kvasir").mkdir(parents=True)
    chats = tmp_path / "home" / "user" / ".local" / "share" / "kvasir" / "chats.db"
    chats.write_text("chats", encoding="utf-8")
    for folder in ("updates", "info"):
        (tmp_path / "var" / "lib" / "dpkg" / folder).mkdir(parents=True)
    (tmp_path / "var" / "lib" / "dpkg" / "status").touch()
    options = [f"--root={tmp_path}", "--force-depends", "--force-script-chrootless", f"--log={tmp_path}/log"]
    subprocess.run(["dpkg", *options, "--install", str(package)], capture_output=True, check=True)
    home = tmp_path / "usr" / "lib" / "kvasir"
    assert (tmp_path / "usr" / "bin" / "kvasir").resolve() == home / "kvasir"
    for folder in (home / "_internal" / "engine" / "__pycache__", home / "python" / "__pycache__"):
        folder.mkdir()  # as Python, run by root, leaves them
        (folder / "installation.cpython-311.pyc").write_bytes(b"compiled")
    subprocess.run(["dpkg", *options, "--purge", "kvasir"], capture_output=True, check=True)
    assert not (tmp_path / "usr").exists()
    assert chats.read_text(encoding="utf-8") == "chats"


def test_build_that_fails_leaves_the_former_package_and_nothing_else(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "bin" / "dpkg-deb"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\nfor place; do :; done\necho half >"$place"\necho full >&2\nexit 1\n', encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)
    out = tmp_path / "out"
    (out / ".deb").mkdir(parents=True)  # of a build that was killed
    (out / ".deb" / "kvasir.deb").write_text("half", encoding="utf-8")
    former = out / f"kvasir_{VERSION}_amd64.deb"
    former.write_text("former", encoding="utf-8")
    with pytest.raises(OSError, match="dpkg-deb failed: full"):
        deb.build(program, out, VERSION, EPOCH, level=1)
    assert [(path.name, path.read_text(encoding="utf-8")) for path in out.iterdir()] == [(former.name, "former")]


def test_link_that_leads_out_stops_the_build(program: Path, tmp_path: Path) -> None:
    other = shutil.copytree(program, tmp_path / "program", symlinks=True)
    (other / "_internal" / "libc.so.6").symlink_to("/lib/x86_64-linux-gnu/libc.so.6")
    with pytest.raises(ValueError, match=r"_internal/libc\.so\.6 is a link to /lib"):
        deb.build(other, tmp_path / "out", VERSION, EPOCH)


def _tar(package: Path) -> tarfile.TarFile:
    done = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(package)], capture_output=True, check=True)
    return tarfile.open(fileobj=io.BytesIO(done.stdout))


def _fields(package: Path) -> dict[str, str]:
    done = subprocess.run(["dpkg-deb", "-f", str(package)], capture_output=True, text=True, check=True)
    return dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line and line[0] != " ")
